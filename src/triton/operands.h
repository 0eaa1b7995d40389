#ifndef INFINI_OPS_TRITON_OPERANDS_H_
#define INFINI_OPS_TRITON_OPERANDS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/geometry.h"
#include "infini/ops/operator.h"

// How the glue code of operators describes tensors to kernels.
namespace infini::ops::triton {

// The dimensions before a tensor's rows (`own` is 1) or matrices (2).
inline Tensor Leading(const Tensor& tensor, std::size_t own) {
  const std::size_t leading = tensor.dimensions() - own;
  return {tensor.data(),
          {tensor.shape().data(), leading},
          {tensor.strides().data(), leading},
          tensor.data_type(),
          tensor.device()};
}

// True if 32 bits are enough for the index in every dimension of all tensors, up to the end of the
// last block.
inline bool IsCountable(const Invocation& call) {
  for (std::size_t i = 0; i < call.size; ++i) {
    if (call.arguments[i].tag != Argument::Tag::kTensor) continue;
    const Span<std::int64_t> shape = call.tensor(i).shape();
    const bool is_countable = std::all_of(shape.begin(), shape.end(), [](std::int64_t size) {
      return size <= std::int64_t{1} << 30;
    });
    if (!is_countable) return false;
  }
  return true;
}
inline constexpr char kCountableLimit[] = "no dimension of more than 2^30 elements";

// Limit for kernels with 32-bit offsets, which count up to the end of the last block of elements.
inline constexpr std::int64_t kMaxOffset = std::numeric_limits<std::int32_t>::max() - 1024;

// In elements. Absent dimensions have size 1 and stride 0.
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
