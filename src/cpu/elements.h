#ifndef INFINI_OPS_CPU_ELEMENTS_H_
#define INFINI_OPS_CPU_ELEMENTS_H_

#include "core/elements.h"
#include "cpu/half.h"

// core/elements.h with the CPU's 16-bit floats.
namespace infini::ops::cpu {

template <typename Function>
auto WithFloatType(DataType type, const Function& function) {
  return ops::WithFloatType<Float16, BFloat16>(type, function);
}

template <typename Function>
auto WithRealType(DataType type, const Function& function) {
  return ops::WithRealType<Float16, BFloat16>(type, function);
}

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ELEMENTS_H_
