#ifndef INFINI_OPS_CORE_CONCATENATION_H_
#define INFINI_OPS_CORE_CONCATENATION_H_

#include <cstdint>

#include "infini/ops/tensor.h"

namespace infini::ops {

// For compatibility, torch ignores one-dimensional empty tensors among tensors of any shape: early
// versions had no other empty tensors.
inline bool IsNothing(const Tensor& tensor) {
  return tensor.dimensions() == 1 && tensor.shape()[0] == 0;
}

// True if `out` has the shape of the tensors concatenated along `dim`.
bool IsConcatenation(Span<Tensor> tensors, std::int64_t dim, const Tensor& out);

// The dimension's index, counted from the first one.
inline std::size_t DimensionOf(std::int64_t dim, const Tensor& out) {
  return static_cast<std::size_t>(dim) + (dim < 0 ? out.dimensions() : 0);
}

// Calls `function` with each non-empty tensor and its part of `out`.
template <typename Function>
void ForEachPart(Span<Tensor> tensors, std::size_t dimension, const Tensor& out,
                 const Function& function) {
  const std::int64_t step =
      out.strides()[dimension] * static_cast<std::int64_t>(DataTypeSize(out.data_type()));
  char* begin = out.data<char>();
  for (const Tensor& tensor : tensors) {
    if (IsNothing(tensor)) continue;
    function(tensor, Tensor(begin, tensor.shape(), out.strides(), out.data_type(), out.device()));
    begin += tensor.shape()[dimension] * step;
  }
}

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_CONCATENATION_H_
