#include "base/causal_softmax.h"

#include "cpu/softmax.h"

namespace infini::ops {

template <>
struct Operator<CausalSoftmax, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& out) { cpu::Softmax(input, 1, true, out); }
};

INFINI_OPS_REGISTER(CausalSoftmax, Device::Type::kCpu, 0);

}  // namespace infini::ops
