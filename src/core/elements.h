#ifndef INFINI_OPS_CORE_ELEMENTS_H_
#define INFINI_OPS_CORE_ELEMENTS_H_

#include <cstdint>
#include <type_traits>

#include "infini/ops/data_type.h"

// The element types that native implementations take; 16-bit floats each device has its own of.
namespace infini::ops {

// The type to compute in: 16-bit floats as float32; integers as unsigned ones, which wrap around
// where C++ leaves the sum of signed ones undefined; everything else as itself.
template <typename T>
using Computed =
    std::conditional_t<std::is_integral_v<T>,
                       std::conditional_t<(sizeof(T) < 8), std::uint32_t, std::uint64_t>,
                       std::conditional_t<std::is_same_v<T, double>, double, float>>;

// Calls `function` with a null pointer to the element type and returns what it does; what stands
// for nothing (false, a null pointer) for another than a float type.
template <typename Float16, typename BFloat16, typename Function>
auto WithFloatType(DataType type, const Function& function) {
  switch (type) {
    case DataType::kFloat16:
      return function(static_cast<Float16*>(nullptr));
    case DataType::kBFloat16:
      return function(static_cast<BFloat16*>(nullptr));
    case DataType::kFloat32:
      return function(static_cast<float*>(nullptr));
    case DataType::kFloat64:
      return function(static_cast<double*>(nullptr));
    default:
      return decltype(function(static_cast<float*>(nullptr)))();
  }
}

// The same for integers, too.
template <typename Float16, typename BFloat16, typename Function>
auto WithRealType(DataType type, const Function& function) {
  switch (type) {
    case DataType::kInt64:
      return function(static_cast<std::int64_t*>(nullptr));
    case DataType::kInt32:
      return function(static_cast<std::int32_t*>(nullptr));
    case DataType::kInt16:
      return function(static_cast<std::int16_t*>(nullptr));
    case DataType::kInt8:
      return function(static_cast<std::int8_t*>(nullptr));
    case DataType::kUInt8:
      return function(static_cast<std::uint8_t*>(nullptr));
    default:
      return WithFloatType<Float16, BFloat16>(type, function);
  }
}

// What the pointers above point to, in a generic lambda.
template <typename Pointer>
using ElementOf = std::remove_pointer_t<Pointer>;

inline bool IsFloatType(DataType type) {
  return WithFloatType<float, float>(type, [](auto*) { return true; });
}
inline bool IsRealType(DataType type) {
  return WithRealType<float, float>(type, [](auto*) { return true; });
}
// What can be moved about, if not computed with.
inline bool IsStoredType(DataType type) { return type == DataType::kBool || IsRealType(type); }

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_ELEMENTS_H_
