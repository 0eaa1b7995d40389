#include "base/gelu_and_mul.h"

#include "cpu/gated.h"

namespace infini::ops {

template <>
struct Operator<GeluAndMul, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& out) {
    cpu::GateHalves(cpu::Activation::kGelu, input, out);
  }
};

INFINI_OPS_REGISTER(GeluAndMul, Device::Type::kCpu, 0);

}  // namespace infini::ops
