#ifndef INFINI_OPS_CPU_ELEMENTS_H_
#define INFINI_OPS_CPU_ELEMENTS_H_

#include <cstdint>

#include "core/elements.h"
#include "cpu/half.h"

// core/elements.h with the CPU's 16-bit floats.
namespace infini::ops::cpu {

template <typename Function>
auto WithSmallFloatType(DataType type, const Function& function) {
  return ops::WithSmallFloatType<Float16, BFloat16>(type, function);
}

template <typename Function>
auto WithFloatType(DataType type, const Function& function) {
  return ops::WithFloatType<Float16, BFloat16>(type, function);
}

template <typename Function>
auto WithRealType(DataType type, const Function& function) {
  return ops::WithRealType<Float16, BFloat16>(type, function);
}

// Calls `function` with a null pointer to an integer type of the same size.
template <typename Function>
void WithSizeOf(DataType type, const Function& function) {
  switch (DataTypeSize(type)) {
    case 1:
      return function(static_cast<std::uint8_t*>(nullptr));
    case 2:
      return function(static_cast<std::uint16_t*>(nullptr));
    case 4:
      return function(static_cast<std::uint32_t*>(nullptr));
    default:
      return function(static_cast<std::uint64_t*>(nullptr));
  }
}

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ELEMENTS_H_
