#ifndef INFINI_OPS_CPU_ELEMENTWISE_H_
#define INFINI_OPS_CPU_ELEMENTWISE_H_

#include <cstdint>

#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// A loop over `count` contiguous elements of two inputs and an output. `parameter` is a number of
// the type to compute in, for an operator that has one.
using ElementwiseKernel = void (*)(const void* input, const void* other, void* out,
                                   std::int64_t count, const void* parameter);

// Calls `kernel` for all elements of `out`, whatever the layouts. The inputs have its element type,
// and broadcast to its shape. A large `out` of a memory-bound kernel is stored past the caches.
void Elementwise(const Tensor& input, const Tensor& other, const Tensor& out,
                 ElementwiseKernel kernel, const void* parameter = nullptr,
                 bool is_memory_bound = true);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ELEMENTWISE_H_
