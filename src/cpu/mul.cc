#include "base/mul.h"

#include <stdexcept>

#include "core/requirements.h"
#include "cpu/elements.h"
#include "cpu/elementwise.h"
#include "cpu/kernels.h"

#define INFINI_OPS_KERNELS "cpu/mul_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {

template <>
struct Operator<Mul, Device::Type::kCpu, 0> {
  static bool Supports(const Tensor& input, const Tensor& other, const Tensor& out) {
    return IsElementwise(out, {&input, &other}) && IsRealType(out.data_type());
  }

  static void Run(const Tensor& input, const Tensor& other, const Tensor& out) {
    if (!Supports(input, other, out)) {
      throw std::invalid_argument(
          "mul: slot 0 takes aligned strided tensors of one real type, and an out of the shape "
          "that they broadcast to; out must not overlap itself, or an input unless both are the "
          "same view; got " +
          Describe(input) + ", " + Describe(other) + " and out " + Describe(out));
    }
    cpu::Elementwise(input, other, out, cpu::WithRealType(out.data_type(), [](auto* element) {
                       return INFINI_OPS_KERNEL(MultiplyElements<ElementOf<decltype(element)>>);
                     }));
  }
};

INFINI_OPS_REGISTER(Mul, Device::Type::kCpu, 0);

}  // namespace infini::ops
