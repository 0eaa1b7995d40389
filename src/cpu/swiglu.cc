#include "base/swiglu.h"

#include "cpu/elements.h"
#include "cpu/elementwise.h"
#include "cpu/kernels.h"

#define INFINI_OPS_KERNELS "cpu/swiglu_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {

template <>
struct Operator<Swiglu, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& gate, const Tensor& out) {
    const auto kernel = cpu::WithFloatType(out.data_type(), [](auto* element) {
      return INFINI_OPS_KERNEL(SwigluElements<ElementOf<decltype(element)>>);
    });
    cpu::Elementwise(input, gate, out, kernel, nullptr, /*is_memory_bound=*/false);
  }
};

INFINI_OPS_REGISTER(Swiglu, Device::Type::kCpu, 0);

}  // namespace infini::ops
