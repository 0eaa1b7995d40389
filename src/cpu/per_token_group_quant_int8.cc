#include "base/per_token_group_quant_int8.h"

#include <cmath>
#include <cstdint>

#include "cpu/quantize.h"
#include "infini/ops/tensor.h"

namespace infini::ops {

template <>
struct Operator<PerTokenGroupQuantInt8, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, std::int64_t group_size, double eps, double int8_min,
                  double int8_max, const Tensor& output_q, const Tensor& output_s) {
    const float least = std::ceil(static_cast<float>(int8_min));
    const float most = std::floor(static_cast<float>(int8_max));
    const auto rule = [=](const cpu::Extremes& range) {
      const float scale = cpu::GroupScale(range, eps, int8_max, false);
      return cpu::Scaling{scale, true, least, most, 0, scale};
    };
    cpu::QuantizeGroups(input, group_size, rule, output_q, output_s);
  }
};

INFINI_OPS_REGISTER(PerTokenGroupQuantInt8, Device::Type::kCpu, 0);

}  // namespace infini::ops
