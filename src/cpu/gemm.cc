#include "base/gemm.h"

#include "cpu/product.h"

namespace infini::ops {

template <>
struct Operator<Gemm, Device::Type::kCpu, 0> {
  static void Run(const Invocation& call) { cpu::Multiply(call, GemmOf); }
};

INFINI_OPS_REGISTER(Gemm, Device::Type::kCpu, 0);

}  // namespace infini::ops
