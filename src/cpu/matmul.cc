#include "base/matmul.h"

#include "cpu/product.h"

namespace infini::ops {

template <>
struct Operator<Matmul, Device::Type::kCpu, 0> {
  static void Run(const Invocation& call) { cpu::Multiply(call, MatmulOf); }
};

INFINI_OPS_REGISTER(Matmul, Device::Type::kCpu, 0);

}  // namespace infini::ops
