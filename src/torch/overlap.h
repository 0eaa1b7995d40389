#ifndef INFINI_OPS_TORCH_OVERLAP_H_
#define INFINI_OPS_TORCH_OVERLAP_H_

#include <ATen/core/Tensor.h>

namespace infini::ops::torch_backend {

// True when an element of one may lie in memory between elements of the other. Cheap. False for
// tensors without memory of their own (sparse, meta and so on).
bool MayOverlap(const at::Tensor& a, const at::Tensor& b);

// True when an element of one lies in the memory of an element of the other. Looks at each.
bool Overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_OVERLAP_H_
