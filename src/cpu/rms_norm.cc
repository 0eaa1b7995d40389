#include "base/rms_norm.h"

#include "cpu/norm.h"

namespace infini::ops {

template <>
struct Operator<RmsNorm, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& weight, double eps, const Tensor& out) {
    cpu::RmsNorm(input, weight, eps, out);
  }
};

INFINI_OPS_REGISTER(RmsNorm, Device::Type::kCpu, 0);

}  // namespace infini::ops
