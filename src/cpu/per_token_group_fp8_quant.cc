#include "base/per_token_group_fp8_quant.h"

#include <cstdint>

#include "cpu/quantize.h"
#include "infini/ops/tensor.h"

namespace infini::ops {

template <>
struct Operator<PerTokenGroupFp8Quant, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, std::int64_t group_size, double eps, double fp8_min,
                  double fp8_max, bool scale_ue8m0, const Tensor& output_q,
                  const Tensor& output_s) {
    const float least = static_cast<float>(fp8_min);
    const float most = static_cast<float>(fp8_max);
    const auto rule = [=](const cpu::Extremes& range) {
      const float scale = cpu::GroupScale(range, eps, fp8_max, scale_ue8m0);
      return cpu::Scaling{scale, true, least, most, 0, scale};
    };
    cpu::QuantizeGroups(input, group_size, rule, output_q, output_s);
  }
};

INFINI_OPS_REGISTER(PerTokenGroupFp8Quant, Device::Type::kCpu, 0);

}  // namespace infini::ops
