#include "base/gelu_tanh_and_mul.h"

#include "cpu/gated.h"

namespace infini::ops {

template <>
struct Operator<GeluTanhAndMul, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& out) {
    cpu::GateHalves(cpu::Activation::kGeluTanh, input, out);
  }
};

INFINI_OPS_REGISTER(GeluTanhAndMul, Device::Type::kCpu, 0);

}  // namespace infini::ops
