#ifndef INFINI_OPS_TRITON_NORM_H_
#define INFINI_OPS_TRITON_NORM_H_

#include "triton/launch.h"
#include "triton/operands.h"

// The glue code of operators that normalize sums.
namespace infini::ops::triton {

// For at most two dimensions of rows. `rows.data` has the addresses in `out`, `input`, `residual`
// and `residual_out`.
template <typename Request>
Request MakeSumRequest(const Geometry<4>& rows, const Tensor& input, const Tensor& residual,
                       const Tensor& weight, double eps, const Tensor& out,
                       const Tensor& residual_out) {
  const DataType type = out.data_type();
  const std::size_t last = out.dimensions() - 1;
  Request request{};
  request.data_type = static_cast<int>(type);
  request.out = rows.data[0];
  request.input = rows.data[1];
  request.residual = rows.data[2];
  request.residual_out = rows.data[3];
  request.weight = weight.data();
  request.rows = rows.count();
  request.inner_rows = SizeOf(rows, 0);
  request.columns = out.shape()[last];
  request.eps = eps;
  request.out_inner = StrideOf(rows, 0, 0, type);
  request.out_outer = StrideOf(rows, 0, 1, type);
  request.input_inner = StrideOf(rows, 1, 0, type);
  request.input_outer = StrideOf(rows, 1, 1, type);
  request.residual_inner = StrideOf(rows, 2, 0, type);
  request.residual_outer = StrideOf(rows, 2, 1, type);
  request.residual_out_inner = StrideOf(rows, 3, 0, type);
  request.residual_out_outer = StrideOf(rows, 3, 1, type);
  request.out_column = out.strides()[last];
  request.input_column = input.strides()[last];
  request.residual_column = residual.strides()[last];
  request.residual_out_column = residual_out.strides()[last];
  request.weight_column = weight.strides()[0];
  return request;
}

// As base/add_rms_norm.h.
template <typename Request>
void AddRmsNorm(const char* name,
                InfiniOpsTritonStatus (*dispatcher)(const Request*, InfiniOpsTritonCall*),
                const Invocation& invocation, const Tensor& input, const Tensor& residual,
                const Tensor& weight, double eps, const Tensor& out, const Tensor& residual_out) {
  if (out.element_count() == 0) return;
  const auto rows = MakeGeometry(Leading(out, 1), Leading(input, 1), Leading(residual, 1),
                                 Leading(residual_out, 1));
  ForEachPiece(rows, 2, [&](const Geometry<4>& part) {
    Launch(name, dispatcher,
           MakeSumRequest<Request>(part, input, residual, weight, eps, out, residual_out),
           invocation);
  });
}

}  // namespace infini::ops::triton

#endif  // INFINI_OPS_TRITON_NORM_H_
