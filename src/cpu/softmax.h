#ifndef INFINI_OPS_CPU_SOFTMAX_H_
#define INFINI_OPS_CPU_SOFTMAX_H_

#include <cstdint>

#include "cpu/kernels.h"
#include "infini/ops/data_type.h"
#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// The softmax of the first `visible` elements of a row of `size` contiguous ones, times `factor`;
// the results after them can be overwritten. `scratch` has room for `SoftmaxScratch(size)` bytes.
using SoftmaxFunction = void (*)(const void* row, std::int64_t visible, std::int64_t size,
                                 double factor, void* scratch, void* out);

// For all float types.
SoftmaxFunction SoftmaxOf(DataType type);

// Room for the powers, up to the end of the last one of the widest vectors.
constexpr std::int64_t SoftmaxScratch(std::int64_t size) {
  return (size + kMostLanes) * static_cast<std::int64_t>(sizeof(double));
}

// Softmax of `input * scale` over the last dimension. If it `is_causal`, each row sees only the
// columns of base/causal_softmax.h.
void Softmax(const Tensor& input, double scale, bool is_causal, const Tensor& out);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_SOFTMAX_H_
