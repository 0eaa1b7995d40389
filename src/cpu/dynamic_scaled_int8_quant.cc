#include "base/dynamic_scaled_int8_quant.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "cpu/quantize.h"
#include "infini/ops/tensor.h"

namespace infini::ops {
namespace {

// The largest magnitude becomes 127.
cpu::Scaling Symmetric(const cpu::Extremes& range) {
  const float most = range.magnitude();
  return {most == 0 ? 0 : 127 / most, false, -128, 127, 0, most / 127};
}

// The range becomes -128 to 127, and one number -1, 0 or 1.
cpu::Scaling Asymmetric(const cpu::Extremes& range) {
  if (range.is_empty()) return {0, false, -128, 127, -128, 0};
  const bool is_one = range.least == range.most;
  const float scale = is_one ? std::abs(range.least) : (range.most - range.least) / 255;
  const bool has_inverse = scale >= std::numeric_limits<float>::min();
  const float factor = has_inverse ? 1 / scale : 0;
  constexpr auto limit = static_cast<float>(cpu::kMostZeroPoint);
  // A product in place of the quotient could be rounded once with the difference.
  const float zero_point = std::nearbyint(-128 - (has_inverse ? range.least / scale : 0));
  // That of infinity over infinity is NaN.
  const float used = std::isnan(zero_point) ? -128 : std::clamp(zero_point, -limit, limit);
  return {factor, false, -128, 127, static_cast<std::int32_t>(used), scale};
}

}  // namespace

template <>
struct Operator<DynamicScaledInt8Quant, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& result, const Tensor& scale,
                  const std::optional<Tensor>& azp) {
    const std::int64_t size = input.shape()[input.dimensions() - 1];
    const auto rule = azp ? &Asymmetric : &Symmetric;
    cpu::QuantizeGroups(input, size, rule, result, scale, azp ? &*azp : nullptr);
  }
};

INFINI_OPS_REGISTER(DynamicScaledInt8Quant, Device::Type::kCpu, 0);

}  // namespace infini::ops
