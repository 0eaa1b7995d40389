#ifndef INFINI_OPS_CPU_CONVERT_H_
#define INFINI_OPS_CPU_CONVERT_H_

#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// Copies `from`, broadcast to the shape of `to`, and converts it to the element type of `to`. Both
// must be stored types.
void Convert(const Tensor& from, const Tensor& to);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_CONVERT_H_
