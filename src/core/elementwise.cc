#include "core/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

namespace infini::ops {
namespace {

// The tensor's extent in a dimension of a shape of `rank` dimensions that it broadcasts to.
std::int64_t ExtentIn(std::size_t rank, std::size_t dimension, const Tensor& tensor) {
  const std::size_t missing = rank - tensor.dimensions();
  return dimension < missing ? 1 : tensor.shape()[dimension - missing];
}

// The largest number that rounds to a finite one of the type; nothing for an integer type.
std::optional<double> LargestFloat(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 65519.0;
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

bool HasBroadcastShape(const Tensor& out, std::initializer_list<const Tensor*> inputs) {
  std::size_t rank = 0;
  for (const Tensor* input : inputs) rank = std::max(rank, input->dimensions());
  if (out.dimensions() != rank) return false;
  for (std::size_t i = 0; i < rank; ++i) {
    std::int64_t extent = 1;
    for (const Tensor* input : inputs) {
      if (!BroadcastsTo(*input, out)) return false;
      if (extent == 1) extent = ExtentIn(rank, i, *input);
    }
    if (extent != out.shape()[i]) return false;
  }
  return true;
}

bool IsAligned(const Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data()) % DataTypeSize(tensor.data_type()) == 0;
}

bool IsElementwise(const Tensor& out, std::initializer_list<const Tensor*> inputs) {
  if (!out.defined() || DataTypeSize(out.data_type()) == 0 || !IsAligned(out)) return false;
  for (const Tensor* input : inputs) {
    if (!input->defined() || DataTypeSize(input->data_type()) == 0 || !IsAligned(*input) ||
        !IsWritable(out, *input)) {
      return false;
    }
  }
  return HasBroadcastShape(out, inputs);
}

bool IsFactor(const Scalar& value, DataType type) {
  if (value.kind() == Scalar::Kind::kBool || value.kind() == Scalar::Kind::kComplex) return false;
  const std::optional<double> largest = LargestFloat(type);
  if (largest) {
    const auto real = value.To<double>();
    return std::isinf(real) || std::isnan(real) || std::abs(real) <= *largest;
  }
  if (value.kind() != Scalar::Kind::kInt) return false;
  const auto bits = static_cast<int>(8 * DataTypeSize(type));
  if (bits == 64) return true;
  const auto integer = value.To<std::int64_t>();
  const std::int64_t limit = std::int64_t{1} << bits;
  if (type == DataType::kUInt8) return 0 <= integer && integer < limit;
  return -limit / 2 <= integer && integer < limit / 2;
}

}  // namespace infini::ops
