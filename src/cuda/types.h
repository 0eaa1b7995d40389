#ifndef INFINI_OPS_CUDA_TYPES_H_
#define INFINI_OPS_CUDA_TYPES_H_

#include <cstdint>
#include <type_traits>

#include "cuda/runtime.h"

// The element types that kernels take, and what they compute in.
namespace infini::ops::cuda {

// 16-bit floats as float32; integers as unsigned ones, which wrap around where C++ leaves the sum
// of signed ones undefined; everything else as itself.
template <typename T>
struct Computed {
  using Unsigned = std::conditional_t<(sizeof(T) < 8), std::uint32_t, std::uint64_t>;
  using Type = std::conditional_t<std::is_integral_v<T>, Unsigned, T>;
};
template <>
struct Computed<Float16> {
  using Type = float;
};
template <>
struct Computed<BFloat16> {
  using Type = float;
};
template <typename T>
using ComputedType = typename Computed<T>::Type;

// Calls `function` with a null pointer to the element type; false for another than a float type.
template <typename Function>
bool WithFloatType(DataType type, const Function& function) {
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
      return false;
  }
}

// The same for integers, too.
template <typename Function>
bool WithRealType(DataType type, const Function& function) {
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
      return WithFloatType(type, function);
  }
}

// What the pointers above point to, in a generic lambda.
template <typename Pointer>
using ElementOf = std::remove_pointer_t<Pointer>;

inline bool IsFloatType(DataType type) {
  return WithFloatType(type, [](auto*) { return true; });
}
inline bool IsRealType(DataType type) {
  return WithRealType(type, [](auto*) { return true; });
}
// What can be moved about, if not computed with.
inline bool IsStoredType(DataType type) { return type == DataType::kBool || IsRealType(type); }

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_TYPES_H_
