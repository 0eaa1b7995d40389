#ifndef INFINI_OPS_TORCH_TENSORS_H_
#define INFINI_OPS_TORCH_TENSORS_H_

#include <ATen/core/Tensor.h>

namespace infini::ops::torch_backend {

// True for a tensor with strides: not undefined, sparse, opaque or nested.
inline bool IsStrided(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_nested();
}

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_TENSORS_H_
