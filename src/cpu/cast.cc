#include "base/cast.h"

#include "cpu/convert.h"
#include "infini/ops/tensor.h"

namespace infini::ops {

template <>
struct Operator<Cast, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& out) { cpu::Convert(input, out); }
};

INFINI_OPS_REGISTER(Cast, Device::Type::kCpu, 0);

}  // namespace infini::ops
