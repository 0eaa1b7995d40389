#include "cpu/gated.h"

#include "core/gelu.h"
#include "core/halves.h"
#include "cpu/elements.h"
#include "cpu/elementwise.h"
#include "cpu/kernels.h"

#define INFINI_OPS_KERNELS "cpu/gated_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops::cpu {
namespace {

template <typename T>
ElementwiseKernel KernelOf(Activation activation) {
  if constexpr (!std::is_same_v<T, double>) {
    if (activation == Activation::kGelu) {
      return INFINI_OPS_KERNEL(GatedElements<T, Activation::kGelu>);
    }
    if (activation == Activation::kGeluTanh) {
      return INFINI_OPS_KERNEL(GatedElements<T, Activation::kGeluTanh>);
    }
  }
  return INFINI_OPS_KERNEL(GatedElements<T, Activation::kSilu>);
}

}  // namespace

void Gate(Activation activation, const Tensor& input, const Tensor& gate, const Tensor& out) {
  const auto kernel = WithFloatType(out.data_type(), [&](auto* element) {
    return KernelOf<ElementOf<decltype(element)>>(activation);
  });
  Elementwise(input, gate, out, kernel, nullptr, /*is_memory_bound=*/false);
}

void GateHalves(Activation activation, const Tensor& input, const Tensor& out) {
  const Halves halves(input, out);
  Gate(activation, halves.second, halves.first, out);
}

}  // namespace infini::ops::cpu
