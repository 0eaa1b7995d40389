#include "base/add.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "cpu/half.h"
#include "infini/ops/tensor.h"

namespace infini::ops {
namespace {

using cpu::BFloat16;
using cpu::Float16;

// The type to compute in: 16-bit floats as float32; integers as unsigned ones, which wrap around
// where C++ leaves the sum of signed ones undefined; everything else as itself.
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

struct Operand {
  char* data;
  std::vector<std::int64_t> strides;  // in bytes, 0 where broadcast
};

// The tensor's strides as seen from the shape of `out`, which it broadcasts to.
Operand Broadcast(const Tensor& tensor, const Tensor& out) {
  const std::size_t missing = out.dimensions() - tensor.dimensions();
  const auto size = static_cast<std::int64_t>(DataTypeSize(tensor.data_type()));
  Operand operand{tensor.data<char>(), std::vector<std::int64_t>(out.dimensions())};
  for (std::size_t i = missing; i < out.dimensions(); ++i) {
    const bool repeats = tensor.shape()[i - missing] == 1;
    operand.strides[i] = repeats ? 0 : tensor.strides()[i - missing] * size;
  }
  return operand;
}

// The tensor's extent in a dimension of a shape of `rank` dimensions that it broadcasts to.
std::int64_t ExtentIn(std::size_t rank, std::size_t dimension, const Tensor& tensor) {
  const std::size_t missing = rank - tensor.dimensions();
  return dimension < missing ? 1 : tensor.shape()[dimension - missing];
}

// True when `out` has the shape that the inputs broadcast to. Torch resizes any other.
bool HasSumShape(const Tensor& out, const Tensor& input, const Tensor& other) {
  const std::size_t rank = std::max(input.dimensions(), other.dimensions());
  if (out.dimensions() != rank) return false;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t a = ExtentIn(rank, i, input);
    const std::int64_t b = ExtentIn(rank, i, other);
    if ((a != b && a != 1 && b != 1) || out.shape()[i] != (a == 1 ? b : a)) return false;
  }
  return true;
}

// One run along the innermost dimension.
template <typename T>
void AddRow(const char* input, const char* other, char* out, std::int64_t input_stride,
            std::int64_t other_stride, std::int64_t out_stride, std::int64_t count, T alpha_value) {
  using C = typename Computed<T>::Type;
  const C alpha = static_cast<C>(alpha_value);
  constexpr std::int64_t size = sizeof(T);
  if (input_stride == size && other_stride == size && out_stride == size) {
    // The same loop with the strides known, which the compiler turns into vector code.
    const T* a = reinterpret_cast<const T*>(input);
    const T* b = reinterpret_cast<const T*>(other);
    T* c = reinterpret_cast<T*>(out);
    for (std::int64_t i = 0; i < count; ++i) {
      c[i] = static_cast<T>(static_cast<C>(a[i]) + alpha * static_cast<C>(b[i]));
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const C a = static_cast<C>(*reinterpret_cast<const T*>(input + i * input_stride));
    const C b = static_cast<C>(*reinterpret_cast<const T*>(other + i * other_stride));
    *reinterpret_cast<T*>(out + i * out_stride) = static_cast<T>(a + alpha * b);
  }
}

template <typename T>
void AddAll(const Tensor& input_tensor, const Tensor& other_tensor, const Scalar& alpha,
            const Tensor& out_tensor) {
  Operand input = Broadcast(input_tensor, out_tensor);
  Operand other = Broadcast(other_tensor, out_tensor);
  Operand out = Broadcast(out_tensor, out_tensor);
  const T alpha_value = static_cast<T>(alpha.To<typename Computed<T>::Type>());

  const auto shape = out_tensor.shape();
  if (out_tensor.element_count() == 0) return;
  if (input_tensor.is_contiguous() && other_tensor.is_contiguous() && out_tensor.is_contiguous() &&
      input_tensor.element_count() == out_tensor.element_count() &&
      other_tensor.element_count() == out_tensor.element_count()) {
    return AddRow<T>(input.data, other.data, out.data, sizeof(T), sizeof(T), sizeof(T),
                     out_tensor.element_count(), alpha_value);
  }
  if (shape.empty()) {
    return AddRow<T>(input.data, other.data, out.data, 0, 0, 0, 1, alpha_value);
  }

  // An odometer over all dimensions but the innermost.
  const std::size_t inner = shape.size() - 1;
  std::vector<std::int64_t> index(inner, 0);
  while (true) {
    AddRow<T>(input.data, other.data, out.data, input.strides[inner], other.strides[inner],
              out.strides[inner], shape[inner], alpha_value);
    std::size_t dimension = inner;
    while (true) {
      if (dimension == 0) return;
      --dimension;
      const bool carry = ++index[dimension] == shape[dimension];
      const std::int64_t steps = carry ? 1 - shape[dimension] : 1;
      for (Operand* operand : {&input, &other, &out}) {
        operand->data += steps * operand->strides[dimension];
      }
      if (!carry) break;
      index[dimension] = 0;
    }
  }
}

// True when torch, too, would take `alpha` for tensors of T.
template <typename T>
bool Fits(const Scalar& alpha) {
  if (alpha.kind() == Scalar::Kind::kBool || alpha.kind() == Scalar::Kind::kComplex) return false;
  if constexpr (std::is_integral_v<T>) {
    if (alpha.kind() != Scalar::Kind::kInt) return false;
    const auto value = alpha.To<std::int64_t>();
    return static_cast<std::int64_t>(static_cast<T>(value)) == value;
  } else if constexpr (std::is_same_v<T, double>) {
    return true;
  } else {
    const auto value = alpha.To<double>();
    return std::isinf(value) || !std::isinf(static_cast<float>(static_cast<T>(value)));
  }
}

// NumPy's views of raw bytes need not be.
bool IsAligned(const Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data()) % DataTypeSize(tensor.data_type()) == 0;
}

// Calls `function` with a null pointer to the element type; false for an unsupported type.
template <typename Function>
bool WithElementType(DataType type, Function function) {
  switch (type) {
    case DataType::kFloat16:
      return function(static_cast<Float16*>(nullptr));
    case DataType::kBFloat16:
      return function(static_cast<BFloat16*>(nullptr));
    case DataType::kFloat32:
      return function(static_cast<float*>(nullptr));
    case DataType::kFloat64:
      return function(static_cast<double*>(nullptr));
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
      return false;
  }
}

}  // namespace

template <>
struct Operator<Add, Device::Type::kCpu, 0> {
  static bool Supports(const Tensor& input, const Tensor& other, const Scalar& alpha,
                       const Tensor& out) {
    if (!input.defined() || !other.defined() || !out.defined()) return false;
    const DataType type = out.data_type();
    return input.data_type() == type && other.data_type() == type &&
           HasSumShape(out, input, other) && IsAligned(input) && IsAligned(other) &&
           IsAligned(out) && IsWritable(out, input) && IsWritable(out, other) &&
           WithElementType(type, [&](auto* element) {
             return Fits<std::remove_pointer_t<decltype(element)>>(alpha);
           });
  }

  static void Run(const Tensor& input, const Tensor& other, const Scalar& alpha,
                  const Tensor& out) {
    if (!Supports(input, other, alpha, out)) {
      throw std::invalid_argument(
          "add: slot 0 takes aligned strided tensors of one real type, an alpha that the type can "
          "hold, and an out of the shape they broadcast to that overlaps neither itself nor, in "
          "part, an input; got " +
          Describe(input) + ", " + Describe(other) + " and out " + Describe(out));
    }
    WithElementType(out.data_type(), [&](auto* element) {
      AddAll<std::remove_pointer_t<decltype(element)>>(input, other, alpha, out);
      return true;
    });
  }
};

INFINI_OPS_REGISTER(Add, Device::Type::kCpu, 0);

}  // namespace infini::ops
