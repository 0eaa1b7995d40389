#ifndef INFINI_OPS_TORCH_OVERLAP_H_
#define INFINI_OPS_TORCH_OVERLAP_H_

#include <ATen/core/Tensor.h>

namespace infini::ops::torch_backend {

// True if the memory ranges of the two tensors intersect. Cheap. False for tensors without memory
// of their own (sparse, meta and so on).
bool MayOverlap(const at::Tensor& a, const at::Tensor& b);

// True if an element of one overlaps an element of the other. Checks each element.
bool Overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_OVERLAP_H_
