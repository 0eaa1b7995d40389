#ifndef INFINI_OPS_CPU_CONVERT_H_
#define INFINI_OPS_CPU_CONVERT_H_

#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// Copies `from`, which broadcasts to the shape of `to`, in the element type of `to`. Both are
// stored types.
void Convert(const Tensor& from, const Tensor& to);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_CONVERT_H_
