#ifndef INFINI_OPS_CPU_COMPUTED_H_
#define INFINI_OPS_CPU_COMPUTED_H_

#include <cstdint>
#include <type_traits>

#include "cpu/half.h"

namespace infini::ops::cpu {

// The type to compute in: 16-bit floats as float32; integers as unsigned ones, which wrap around
// where C++ leaves the sum of signed ones undefined; everything else as itself.
template <typename T>
struct ComputedAs {
  using Unsigned = std::conditional_t<(sizeof(T) < 8), std::uint32_t, std::uint64_t>;
  using Type = std::conditional_t<std::is_integral_v<T>, Unsigned, T>;
};
template <>
struct ComputedAs<Float16> {
  using Type = float;
};
template <>
struct ComputedAs<BFloat16> {
  using Type = float;
};
template <typename T>
using Computed = typename ComputedAs<T>::Type;

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_COMPUTED_H_
