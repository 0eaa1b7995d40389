#include "base/add_rms_norm.h"

#include "cpu/norm.h"

namespace infini::ops {

template <>
struct Operator<AddRmsNorm, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& residual, const Tensor& weight, double eps,
                  const Tensor& out, const Tensor& residual_out) {
    cpu::AddRmsNorm(input, residual, weight, eps, out, residual_out);
  }
};

INFINI_OPS_REGISTER(AddRmsNorm, Device::Type::kCpu, 0);

}  // namespace infini::ops
