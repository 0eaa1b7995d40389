#include "cpu/softmax.h"

#include "cpu/elements.h"
#include "cpu/kernels.h"

#define INFINI_OPS_KERNELS "cpu/causal_softmax_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops::cpu {

SoftmaxFunction SoftmaxOf(DataType type) {
  return WithFloatType(type, [](auto* element) -> SoftmaxFunction {
    return INFINI_OPS_KERNEL(SoftmaxRow<ElementOf<decltype(element)>>);
  });
}

}  // namespace infini::ops::cpu
