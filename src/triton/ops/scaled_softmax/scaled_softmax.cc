#include "base/scaled_softmax.h"

#include <cmath>

#include "triton/launch.h"
#include "triton/operands.h"
#include "triton/scaled_softmax.h"

namespace infini::ops {
namespace {

using Request = InfiniOpsTritonScaledSoftmaxRequest;

// For at most two dimensions of rows: `rows.data` contains the addresses in `out` and `input`.
Request MakeRequest(const Geometry<2>& rows, const Tensor& input, double scale, const Tensor& out) {
  const DataType type = out.data_type();
  const std::size_t last = out.dimensions() - 1;
  Request request{};
  request.data_type = static_cast<int>(type);
  request.out = rows.data[0];
  request.input = rows.data[1];
  request.rows = rows.count();
  request.inner_rows = triton::SizeOf(rows, 0);
  request.columns = out.shape()[last];
  const auto rounded = static_cast<float>(scale);
  request.sign = rounded < 0 ? -1 : rounded == 0 ? 0 : 1;
  request.scale = rounded == 0 ? 1 : std::abs(rounded);
  request.out_inner = triton::StrideOf(rows, 0, 0, type);
  request.out_outer = triton::StrideOf(rows, 0, 1, type);
  request.input_inner = triton::StrideOf(rows, 1, 0, type);
  request.input_outer = triton::StrideOf(rows, 1, 1, type);
  request.out_column = out.strides()[last];
  request.input_column = input.strides()[last];
  return request;
}

}  // namespace

template <>
struct Operator<ScaledSoftmax, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{kSmallFloatTypes, &triton::IsCountable, triton::kCountableLimit};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& input, double scale,
                  const Tensor& out) {
    if (out.element_count() == 0) return;
    const auto rows = MakeGeometry(triton::Leading(out, 1), triton::Leading(input, 1));
    ForEachPiece(rows, 2, [&](const Geometry<2>& part) {
      triton::Launch("scaled_softmax", &InfiniOpsTritonScaledSoftmax,
                     MakeRequest(part, input, scale, out), invocation);
    });
  }
};

INFINI_OPS_REGISTER(ScaledSoftmax, Device::Type::kNvidia, 9);

}  // namespace infini::ops
