#ifndef INFINI_OPS_TRITON_GATED_H_
#define INFINI_OPS_TRITON_GATED_H_

#include "core/halves.h"
#include "triton/launch.h"
#include "triton/operands.h"

// The glue code of operators that multiply a tensor by an activated one.
namespace infini::ops::triton {

template <typename Request>
Request MakeGatedRequest(const Geometry<3>& geometry, DataType type) {
  Request request{};
  request.data_type = static_cast<int>(type);
  request.out = geometry.data[0];
  request.input = geometry.data[1];
  request.gate = geometry.data[2];
  request.count = geometry.count();
  request.columns = SizeOf(geometry, 0);
  request.out_column = StrideOf(geometry, 0, 0, type);
  request.out_row = StrideOf(geometry, 0, 1, type);
  request.input_column = StrideOf(geometry, 1, 0, type);
  request.input_row = StrideOf(geometry, 1, 1, type);
  request.gate_column = StrideOf(geometry, 2, 0, type);
  request.gate_row = StrideOf(geometry, 2, 1, type);
  return request;
}

// out = input * activation(gate), broadcast to the shape of `out`.
template <typename Request>
void RunGated(const char* name,
              InfiniOpsTritonStatus (*dispatcher)(const Request*, InfiniOpsTritonCall*),
              const Invocation& invocation, const Tensor& input, const Tensor& gate,
              const Tensor& out) {
  if (out.element_count() == 0) return;
  ForEachPiece(MakeGeometry(out, input, gate), 2, kMaxOffset, [&](const Geometry<3>& piece) {
    Launch(name, dispatcher, MakeGatedRequest<Request>(piece, out.data_type()), invocation);
  });
}

// out = activation(first) * second, of the halves of the input's last dimension.
template <typename Request>
void RunGatedHalves(const char* name,
                    InfiniOpsTritonStatus (*dispatcher)(const Request*, InfiniOpsTritonCall*),
                    const Invocation& invocation, const Tensor& input, const Tensor& out) {
  const Halves halves(input, out);
  RunGated(name, dispatcher, invocation, halves.second, halves.first, out);
}

}  // namespace infini::ops::triton

#endif  // INFINI_OPS_TRITON_GATED_H_
