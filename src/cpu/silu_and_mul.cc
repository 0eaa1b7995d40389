#include "base/silu_and_mul.h"

#include "cpu/gated.h"

namespace infini::ops {

template <>
struct Operator<SiluAndMul, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& out) {
    cpu::GateHalves(cpu::Activation::kSilu, input, out);
  }
};

INFINI_OPS_REGISTER(SiluAndMul, Device::Type::kCpu, 0);

}  // namespace infini::ops
