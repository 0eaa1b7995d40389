#include "base/fused_add_rms_norm.h"

#include "cpu/norm.h"

namespace infini::ops {

template <>
struct Operator<FusedAddRmsNorm, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& residual, const Tensor& weight, double eps) {
    cpu::AddRmsNorm(input, residual, weight, eps, input, residual);
  }
};

INFINI_OPS_REGISTER(FusedAddRmsNorm, Device::Type::kCpu, 0);

}  // namespace infini::ops
