#include "core/requirements.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "core/elements.h"

namespace infini::ops {
namespace {

// The tensor's size in a dimension of a shape of `rank` dimensions that it broadcasts to.
std::int64_t ExtentIn(std::size_t rank, std::size_t dimension, const Tensor& tensor) {
  const std::size_t missing = rank - tensor.dimensions();
  return dimension < missing ? 1 : tensor.shape()[dimension - missing];
}

bool HasBroadcastShape(const Tensor& out, std::initializer_list<const Tensor*> inputs) {
  std::size_t rank = 0;
  for (const Tensor* input : inputs) rank = std::max(rank, input->dimensions());
  if (out.dimensions() != rank) return false;
  for (std::size_t i = 0; i < rank; ++i) {
    bool comes_from_input = false;
    for (const Tensor* input : inputs) {
      const std::int64_t extent = ExtentIn(rank, i, *input);
      if (extent != 1 && extent != out.shape()[i]) return false;
      comes_from_input |= extent == out.shape()[i];
    }
    if (!comes_from_input) return false;
  }
  return true;
}

bool HaveSameShape(const Tensor& a, const Tensor& b) {
  return std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}

// False for types that this library does not know, whose size is unknown.
bool IsAligned(const Tensor& tensor) {
  const std::size_t size = DataTypeSize(tensor.data_type());
  // The size is a power of two. This runs twice per call, and a division would double the time.
  return size != 0 && (reinterpret_cast<std::uintptr_t>(tensor.data()) & (size - 1)) == 0;
}

// The largest number that torch converts to the type; nothing for an integer type.
std::optional<double> LargestFloat(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 65504.0;
    case DataType::kBFloat16:
      return 0x1.FEp127;
    case DataType::kFloat32:
      return std::numeric_limits<float>::max();
    case DataType::kFloat64:
      return std::numeric_limits<double>::max();
    default:
      return std::nullopt;
  }
}

}  // namespace

bool BroadcastsTo(const Tensor& tensor, const Tensor& out) {
  const std::size_t rank = out.dimensions();
  if (tensor.dimensions() > rank) return false;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t extent = ExtentIn(rank, i, tensor);
    if (extent != 1 && extent != out.shape()[i]) return false;
  }
  return true;
}

bool IsInput(const Tensor& input, const Tensor& out) {
  return input.defined() && out.defined() && IsAligned(input) && IsAligned(out) &&
         IsWritable(out, input);
}

bool IsProductInput(const Tensor& input, const Tensor& out) {
  return IsInput(input, out) && input.data_type() == out.data_type() &&
         (input.data() != out.data() || input.element_count() == 0 || out.element_count() == 0);
}

bool IsBias(const Tensor& bias, const Tensor& weight, const Tensor& out) {
  return IsProductInput(bias, out) && bias.dimensions() + 1 == weight.dimensions() &&
         std::equal(bias.shape().begin(), bias.shape().end(), weight.shape().begin());
}

bool IsElementwise(const Tensor& out, std::initializer_list<const Tensor*> inputs) {
  for (const Tensor* input : inputs) {
    if (!IsInput(*input, out) || input->data_type() != out.data_type()) return false;
  }
  return HasBroadcastShape(out, inputs);
}

bool IsRmsNorm(const Tensor& input, const Tensor& weight, const Tensor& out) {
  return IsInput(input, out) && IsInput(weight, out) && input.data_type() == out.data_type() &&
         HaveSameShape(input, out) && out.dimensions() > 0 && weight.dimensions() == 1 &&
         weight.shape()[0] == out.shape()[out.dimensions() - 1];
}

bool IsCausalSoftmax(const Tensor& input, const Tensor& out) {
  const std::size_t rank = out.dimensions();
  return IsInput(input, out) && input.data_type() == out.data_type() && HaveSameShape(input, out) &&
         rank >= 2 && out.shape()[rank - 2] <= out.shape()[rank - 1];
}

bool IsFactor(const Scalar& value, DataType type) {
  if (value.kind() == Scalar::Kind::kBool || value.kind() == Scalar::Kind::kComplex) return false;
  const std::optional<double> largest = LargestFloat(type);
  if (largest) {
    const auto real = value.To<double>();
    return std::isinf(real) || std::isnan(real) || std::abs(real) <= *largest;
  }
  if (!value.is_integral()) return false;
  const bool is_unsigned = IsUnsignedType(type);
  const auto bits = static_cast<int>(8 * DataTypeSize(type)) - (is_unsigned ? 0 : 1);
  const std::uint64_t limit = ~std::uint64_t{0} >> (64 - bits);
  const auto integer = value.To<std::uint64_t>();
  const bool is_negative = value.kind() == Scalar::Kind::kInt && value.To<std::int64_t>() < 0;
  // Torch lets a negative number be subtracted from an unsigned one.
  return is_negative ? -integer <= limit + (is_unsigned ? 0 : 1) : integer <= limit;
}

}  // namespace infini::ops
