#ifndef INFINI_OPS_CPU_ELEMENTS_H_
#define INFINI_OPS_CPU_ELEMENTS_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cpu/half.h"
#include "infini/ops/argument.h"
#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// NumPy's views of raw bytes need not be.
inline bool IsAligned(const Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data()) % DataTypeSize(tensor.data_type()) == 0;
}

// Calls `function` with a null pointer to the element type; false for what is no real float.
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

// True when torch, too, would take `scalar` for tensors of T.
template <typename T>
bool CanHold(const Scalar& scalar) {
  if (scalar.kind() == Scalar::Kind::kBool || scalar.kind() == Scalar::Kind::kComplex) return false;
  if constexpr (std::is_integral_v<T>) {
    if (scalar.kind() != Scalar::Kind::kInt) return false;
    const auto value = scalar.To<std::int64_t>();
    return static_cast<std::int64_t>(static_cast<T>(value)) == value;
  } else if constexpr (std::is_same_v<T, double>) {
    return true;
  } else {
    const auto value = scalar.To<double>();
    return std::isinf(value) || !std::isinf(static_cast<float>(static_cast<T>(value)));
  }
}

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ELEMENTS_H_
