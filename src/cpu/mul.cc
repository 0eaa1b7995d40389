#include "base/mul.h"

#include "cpu/elements.h"
#include "cpu/elementwise.h"
#include "cpu/kernels.h"

#define INFINI_OPS_KERNELS "cpu/mul_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {

template <>
struct Operator<Mul, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& other, const Tensor& out) {
    cpu::Elementwise(input, other, out, cpu::WithRealType(out.data_type(), [](auto* element) {
                       return INFINI_OPS_KERNEL(MultiplyElements<ElementOf<decltype(element)>>);
                     }));
  }
};

INFINI_OPS_REGISTER(Mul, Device::Type::kCpu, 0);

}  // namespace infini::ops
