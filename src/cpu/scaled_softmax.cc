#include "base/scaled_softmax.h"

#include "cpu/softmax.h"

namespace infini::ops {

template <>
struct Operator<ScaledSoftmax, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, double scale, const Tensor& out) {
    cpu::Softmax(input, scale, false, out);
  }
};

INFINI_OPS_REGISTER(ScaledSoftmax, Device::Type::kCpu, 0);

}  // namespace infini::ops
