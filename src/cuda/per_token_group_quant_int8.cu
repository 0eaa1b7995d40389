#include <cmath>
#include <cstdint>

#include "base/per_token_group_quant_int8.h"
#include "cuda/quantize.h"

namespace infini::ops {

template <>
struct Operator<PerTokenGroupQuantInt8, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kSmallFloatTypes, &cuda::HasGroupRows, cuda::kRowsLimit};

  static void Run(const Invocation& invocation, const Tensor& input, std::int64_t group_size,
                  double eps, double int8_min, double int8_max, const Tensor& output_q,
                  const Tensor& output_s) {
    const auto most = static_cast<float>(int8_max);
    const cuda::GroupRule rule{static_cast<float>(eps), most, false,
                               std::ceil(static_cast<float>(int8_min)), std::floor(most)};
    cuda::QuantizeGroups<std::int8_t>(invocation, input, group_size, rule, output_q, output_s);
  }
};

INFINI_OPS_REGISTER(PerTokenGroupQuantInt8, cuda::kDevice, 0);

}  // namespace infini::ops
