#ifndef INFINI_OPS_ARGUMENT_H_
#define INFINI_OPS_ARGUMENT_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "infini/ops/data_type.h"
#include "infini/ops/span.h"
#include "infini/ops/tensor.h"

namespace infini::ops {

// A number of one of Python's four kinds, like ATen's `Scalar`.
class Scalar {
 public:
  // kUnsigned: an integer that fits only into an unsigned type of 64 bits.
  enum class Kind : std::uint8_t { kBool, kInt, kUnsigned, kDouble, kComplex };

  constexpr Scalar() = default;
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  constexpr Scalar(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      kind_ = Kind::kBool;
      integer_ = value;
    } else if constexpr (std::is_integral_v<T>) {
      integer_ = static_cast<std::int64_t>(value);
      if (std::is_unsigned_v<T> && integer_ < 0) kind_ = Kind::kUnsigned;
    } else {
      kind_ = Kind::kDouble;
      real_ = value;
    }
  }
  // A complex number of any library. To include <complex> would double the cost of this header.
  template <typename T, typename = decltype(std::declval<const T&>().imag())>
  constexpr Scalar(const T& value) : Scalar(Complex(value.real(), value.imag())) {}
  static constexpr Scalar Complex(double real, double imaginary) {
    Scalar scalar;
    scalar.kind_ = Kind::kComplex;
    scalar.real_ = real;
    scalar.imaginary_ = imaginary;
    return scalar;
  }

  constexpr Kind kind() const { return kind_; }
  constexpr bool is_integral() const { return kind_ <= Kind::kUnsigned; }

  // The value as a real number type; a complex number loses its imaginary part.
  template <typename T>
  constexpr T To() const {
    if (kind_ == Kind::kUnsigned) return static_cast<T>(static_cast<std::uint64_t>(integer_));
    return is_integral() ? static_cast<T>(integer_) : static_cast<T>(real_);
  }
  constexpr double imaginary() const { return imaginary_; }

 private:
  Kind kind_ = Kind::kInt;
  std::int64_t integer_ = 0;
  double real_ = 0;
  double imaginary_ = 0;
};

// The values of the next two types are the same as in torch.
enum class Layout : std::int8_t {
  kStrided = 0,
  kSparse = 1,
  kSparseCsr = 2,
  kMkldnn = 3,
  kSparseCsc = 4,
  kSparseBsr = 5,
  kSparseBsc = 6,
  kJagged = 7,
};
enum class MemoryFormat : std::int8_t {
  kContiguous = 0,
  kPreserve = 1,
  kChannelsLast = 2,
  kChannelsLast3d = 3
};

// One argument of a call, type-erased: a tag and a value or a borrowed pointer. An operator call is
// an array of arguments, so that neither the dispatch nor the bindings contain code per operator.
// Borrowed objects must outlive the call.
struct Argument {
  enum class Tag : std::uint8_t {
    kNone,
    kScalar,       // also int, float and bool parameters
    kEnumeration,  // DataType, Layout or MemoryFormat, by value
    kDevice,
    kString,
    kTensor,            // -> Tensor
    kTensors,           // -> Tensor[size]
    kForeignTensor,     // -> the framework's own tensor class, for its own slot
    kForeignTensors,    // -> the same, an array of `size`
    kForeignGenerator,  // -> the framework's own random generator, for its own slot
    kIntegers,          // -> std::int64_t[size]
    kDoubles,           // -> double[size]
    kBooleans,          // -> bool[size]
    kScalars,           // -> Scalar[size]
    kArguments,         // -> Argument[size]: a list of tensors, each of any kind or absent
  };

  constexpr Argument() = default;
  constexpr Argument(std::nullopt_t) {}
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  constexpr Argument(T value) : tag(Tag::kScalar), scalar(value) {}
  constexpr Argument(Scalar value) : tag(Tag::kScalar), scalar(value) {}
  template <typename T, std::enable_if_t<std::is_enum_v<T>, int> = 0>
  constexpr Argument(T value) : tag(Tag::kEnumeration), scalar(static_cast<std::int64_t>(value)) {}
  constexpr Argument(Device value) : tag(Tag::kDevice), device(value) {}
  constexpr Argument(std::string_view value) : Argument(Tag::kString, value.data(), value.size()) {}
  constexpr Argument(const Tensor& value) : Argument(Tag::kTensor, &value, 1) {}
  constexpr Argument(Span<Tensor> values) : Argument(Tag::kTensors, values.data(), values.size()) {}
  constexpr Argument(Span<std::int64_t> values)
      : Argument(Tag::kIntegers, values.data(), values.size()) {}
  constexpr Argument(Span<double> values) : Argument(Tag::kDoubles, values.data(), values.size()) {}
  constexpr Argument(Span<bool> values) : Argument(Tag::kBooleans, values.data(), values.size()) {}
  constexpr Argument(Span<Scalar> values) : Argument(Tag::kScalars, values.data(), values.size()) {}
  constexpr Argument(Span<Argument> values)
      : Argument(Tag::kArguments, values.data(), values.size()) {}
  template <typename T>
  constexpr Argument(const std::optional<T>& value)
      : Argument(value ? Argument(*value) : Argument()) {}

  static constexpr Argument ForeignTensor(const void* tensor) {
    return {Tag::kForeignTensor, tensor, 1};
  }
  static constexpr Argument ForeignTensors(const void* tensors, std::size_t size) {
    return {Tag::kForeignTensors, tensors, size};
  }
  static constexpr Argument ForeignGenerator(const void* generator) {
    return {Tag::kForeignGenerator, generator, 1};
  }

  template <typename T>
  constexpr const T* As() const {
    return static_cast<const T*>(pointer);
  }
  constexpr std::string_view string() const { return {As<char>(), size}; }

  Tag tag = Tag::kNone;
  Device device;           // kDevice
  std::uint32_t size = 0;  // of what `pointer` points to
  union {
    Scalar scalar = {};  // kScalar, kEnumeration
    const void* pointer;
  };

 private:
  constexpr Argument(Tag kind, const void* first, std::size_t count)
      : tag(kind), size(static_cast<std::uint32_t>(count)), pointer(first) {}
};

}  // namespace infini::ops

#endif  // INFINI_OPS_ARGUMENT_H_
