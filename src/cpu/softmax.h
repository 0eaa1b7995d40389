#ifndef INFINI_OPS_CPU_SOFTMAX_H_
#define INFINI_OPS_CPU_SOFTMAX_H_

#include <cstdint>

#include "infini/ops/data_type.h"

namespace infini::ops::cpu {

// The softmax of the first `visible` elements of a row of `size` contiguous ones; the results after
// them can be overwritten. `scratch` has room for `SoftmaxScratch(size)` bytes.
using SoftmaxFunction = void (*)(const void* row, std::int64_t visible, std::int64_t size,
                                 void* scratch, void* out);

// For all float types.
SoftmaxFunction SoftmaxOf(DataType type);

// Room for the powers, up to the end of the last one of the widest vectors.
constexpr std::int64_t SoftmaxScratch(std::int64_t size) {
  constexpr std::int64_t most_lanes = 16;
  return (size + most_lanes) * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_SOFTMAX_H_
