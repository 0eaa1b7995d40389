#ifndef INFINI_OPS_CORE_CONCATENATION_H_
#define INFINI_OPS_CORE_CONCATENATION_H_

#include <cstdint>

#include "infini/ops/tensor.h"

namespace infini::ops {

// Torch takes a one-dimensional empty tensor among tensors of any shape, for nothing: it had no
// empty ones of several dimensions once.
inline bool IsNothing(const Tensor& tensor) {
  return tensor.dimensions() == 1 && tensor.shape()[0] == 0;
}

// True when `out` has the type and the shape of the tensors one after the other along `dim`, and
// may be written while they are read.
bool IsConcatenation(Span<Tensor> tensors, std::int64_t dim, const Tensor& out);

// The number of the dimension from the beginning.
inline std::size_t DimensionOf(std::int64_t dim, const Tensor& out) {
  return static_cast<std::size_t>(dim) + (dim < 0 ? out.dimensions() : 0);
}

// Calls `function` with each tensor that is something and the part of `out` that it goes to.
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
