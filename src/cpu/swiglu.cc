#include "base/swiglu.h"

#include "cpu/gated.h"

namespace infini::ops {

template <>
struct Operator<Swiglu, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& gate, const Tensor& out) {
    cpu::Gate(cpu::Activation::kSilu, input, gate, out);
  }
};

INFINI_OPS_REGISTER(Swiglu, Device::Type::kCpu, 0);

}  // namespace infini::ops
