#ifndef INFINI_OPS_CORE_ELEMENTS_H_
#define INFINI_OPS_CORE_ELEMENTS_H_

#include <cstdint>
#include <type_traits>

#include "infini/ops/data_type.h"

// The element types of native implementations. Each device has its own types for 16-bit floats.
namespace infini::ops {

// The type to compute in. 16-bit floats are computed as float32. Integers are computed as unsigned
// ones, which wrap around: overflow of signed integers is undefined in C++. Other types are
// computed as themselves.
template <typename T>
using Computed =
    std::conditional_t<std::is_integral_v<T>,
                       std::conditional_t<(sizeof(T) < 8), std::uint32_t, std::uint64_t>,
                       std::conditional_t<std::is_same_v<T, double>, double, float>>;

// Calls `function` with a null pointer to the element type and returns its result. For a type that
// is not a float type of at most 32 bits, returns a default value (a null pointer).
template <typename Float16, typename BFloat16, typename Function>
auto WithSmallFloatType(DataType type, const Function& function) {
  switch (type) {
    case DataType::kFloat16:
      return function(static_cast<Float16*>(nullptr));
    case DataType::kBFloat16:
      return function(static_cast<BFloat16*>(nullptr));
    case DataType::kFloat32:
      return function(static_cast<float*>(nullptr));
    default:
      return decltype(function(static_cast<float*>(nullptr)))();
  }
}

// The same, including float64.
template <typename Float16, typename BFloat16, typename Function>
auto WithFloatType(DataType type, const Function& function) {
  if (type == DataType::kFloat64) return function(static_cast<double*>(nullptr));
  return WithSmallFloatType<Float16, BFloat16>(type, function);
}

// The same, including integers. For an unsigned one it is the signed type of the same size, which
// has the same sums and products: one kernel is compiled for both.
template <typename Float16, typename BFloat16, typename Function>
auto WithRealType(DataType type, const Function& function) {
  switch (type) {
    case DataType::kInt64:
    case DataType::kUInt64:
      return function(static_cast<std::int64_t*>(nullptr));
    case DataType::kInt32:
    case DataType::kUInt32:
      return function(static_cast<std::int32_t*>(nullptr));
    case DataType::kInt16:
    case DataType::kUInt16:
      return function(static_cast<std::int16_t*>(nullptr));
    case DataType::kInt8:
    case DataType::kUInt8:
      return function(static_cast<std::int8_t*>(nullptr));
    default:
      return WithFloatType<Float16, BFloat16>(type, function);
  }
}

// The type that these pointers point to, in a generic lambda.
template <typename Pointer>
using ElementOf = std::remove_pointer_t<Pointer>;

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_ELEMENTS_H_
