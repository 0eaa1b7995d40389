#ifndef INFINI_OPS_TRITON_OPERANDS_H_
#define INFINI_OPS_TRITON_OPERANDS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/elements.h"
#include "core/geometry.h"
#include "infini/ops/tensor.h"

// How the glue of operators looks at tensors, and what it tells kernels of them.
namespace infini::ops::triton {

// Where the rows (`own` is 1) or matrices (2) of a tensor begin.
inline Tensor Leading(const Tensor& tensor, std::size_t own) {
  const std::size_t leading = tensor.dimensions() - own;
  return {tensor.data(),
          {tensor.shape().data(), leading},
          {tensor.strides().data(), leading},
          tensor.data_type(),
          tensor.device()};
}

// True for the types that the kernels of all operators but add are compiled for.
inline bool IsSmallFloatType(DataType type) {
  return IsFloatType(type) && type != DataType::kFloat64;
}

// True where kernels can count along every dimension with 32 bits, to the end of the last block.
inline bool IsCountable(const Tensor& tensor) {
  const Span<std::int64_t> shape = tensor.shape();
  return std::all_of(shape.begin(), shape.end(),
                     [](std::int64_t size) { return size <= std::int64_t{1} << 30; });
}

// Kernels with 32-bit offsets count with them to the end of the last block of elements.
inline constexpr std::int64_t kMaxOffset = std::numeric_limits<std::int32_t>::max() - 1024;

// In elements; 1 and 0 for a dimension that is not there.
template <int operands>
std::int64_t SizeOf(const Geometry<operands>& geometry, int dimension) {
  return dimension < geometry.rank ? geometry.sizes[dimension] : 1;
}
template <int operands>
std::int64_t StrideOf(const Geometry<operands>& geometry, int operand, int dimension,
                      DataType type) {
  const auto size = static_cast<std::int64_t>(DataTypeSize(type));
  return dimension < geometry.rank ? geometry.strides[operand][dimension] / size : 0;
}

}  // namespace infini::ops::triton

#endif  // INFINI_OPS_TRITON_OPERANDS_H_
