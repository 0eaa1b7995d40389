#include "base/causal_softmax.h"

#include "triton/causal_softmax.h"
#include "triton/launch.h"
#include "triton/operands.h"

namespace infini::ops {
namespace {

using Request = InfiniOpsTritonCausalSoftmaxRequest;

// For at most one dimension of matrices: `matrices.data` contains the addresses in `out` and
// `input`.
Request MakeRequest(const Geometry<2>& matrices, const Tensor& input, const Tensor& out) {
  const DataType type = out.data_type();
  const std::size_t last = out.dimensions() - 1;
  Request request{};
  request.data_type = static_cast<int>(type);
  request.out = matrices.data[0];
  request.input = matrices.data[1];
  request.inner_rows = out.shape()[last - 1];
  request.rows = request.inner_rows * matrices.count();
  request.columns = out.shape()[last];
  request.out_outer = triton::StrideOf(matrices, 0, 0, type);
  request.input_outer = triton::StrideOf(matrices, 1, 0, type);
  request.out_inner = out.strides()[last - 1];
  request.input_inner = input.strides()[last - 1];
  request.out_column = out.strides()[last];
  request.input_column = input.strides()[last];
  return request;
}

}  // namespace

template <>
struct Operator<CausalSoftmax, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{kSmallFloatTypes, &triton::IsCountable, triton::kCountableLimit};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& out) {
    if (out.element_count() == 0) return;
    const auto matrices = MakeGeometry(triton::Leading(out, 2), triton::Leading(input, 2));
    ForEachPiece(matrices, 1, [&](const Geometry<2>& part) {
      triton::Launch("causal_softmax", &InfiniOpsTritonCausalSoftmax, MakeRequest(part, input, out),
                     invocation);
    });
  }
};

INFINI_OPS_REGISTER(CausalSoftmax, Device::Type::kNvidia, 9);

}  // namespace infini::ops
