#include "base/swiglu.h"

#include <stdexcept>

#include "core/requirements.h"
#include "cpu/elements.h"
#include "cpu/elementwise.h"
#include "cpu/kernels.h"

#define INFINI_OPS_KERNELS "cpu/swiglu_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {

template <>
struct Operator<Swiglu, Device::Type::kCpu, 0> {
  static bool Supports(const Tensor& input, const Tensor& gate, const Tensor& out) {
    return IsElementwise(out, {&input, &gate}) && IsFloatType(out.data_type());
  }

  static void Run(const Tensor& input, const Tensor& gate, const Tensor& out) {
    if (!Supports(input, gate, out)) {
      throw std::invalid_argument(
          "swiglu: slot 0 takes aligned strided tensors of one floating-point type, and an out of "
          "the shape that they broadcast to; out must not overlap itself, or an input unless both "
          "are the same view; got " +
          Describe(input) + ", gate " + Describe(gate) + " and out " + Describe(out));
    }
    const auto kernel = cpu::WithFloatType(out.data_type(), [](auto* element) {
      return INFINI_OPS_KERNEL(SwigluElements<ElementOf<decltype(element)>>);
    });
    cpu::Elementwise(input, gate, out, kernel, nullptr, /*is_memory_bound=*/false);
  }
};

INFINI_OPS_REGISTER(Swiglu, Device::Type::kCpu, 0);

}  // namespace infini::ops
