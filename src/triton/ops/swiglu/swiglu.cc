#include "base/swiglu.h"

#include "triton/launch.h"
#include "triton/operands.h"
#include "triton/swiglu.h"

namespace infini::ops {
namespace {

using Request = InfiniOpsTritonSwigluRequest;

Request MakeRequest(const Geometry<3>& geometry, DataType type) {
  Request request{};
  request.data_type = static_cast<int>(type);
  request.out = geometry.data[0];
  request.input = geometry.data[1];
  request.gate = geometry.data[2];
  request.count = geometry.count();
  request.columns = triton::SizeOf(geometry, 0);
  request.out_column = triton::StrideOf(geometry, 0, 0, type);
  request.out_row = triton::StrideOf(geometry, 0, 1, type);
  request.input_column = triton::StrideOf(geometry, 1, 0, type);
  request.input_row = triton::StrideOf(geometry, 1, 1, type);
  request.gate_column = triton::StrideOf(geometry, 2, 0, type);
  request.gate_row = triton::StrideOf(geometry, 2, 1, type);
  return request;
}

}  // namespace

template <>
struct Operator<Swiglu, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{kSmallFloatTypes};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& gate,
                  const Tensor& out) {
    if (out.element_count() == 0) return;
    ForEachPiece(MakeGeometry(out, input, gate), 2, triton::kMaxOffset,
                 [&](const Geometry<3>& piece) {
                   triton::Launch("swiglu", &InfiniOpsTritonSwiglu,
                                  MakeRequest(piece, out.data_type()), invocation);
                 });
  }
};

INFINI_OPS_REGISTER(Swiglu, Device::Type::kNvidia, 9);

}  // namespace infini::ops
