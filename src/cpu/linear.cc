#include "base/linear.h"

#include "cpu/product.h"

namespace infini::ops {

template <>
struct Operator<Linear, Device::Type::kCpu, 0> {
  static void Run(const Invocation& call) { cpu::Multiply(call, LinearOf); }
};

INFINI_OPS_REGISTER(Linear, Device::Type::kCpu, 0);

}  // namespace infini::ops
