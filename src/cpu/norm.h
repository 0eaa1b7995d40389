#ifndef INFINI_OPS_CPU_NORM_H_
#define INFINI_OPS_CPU_NORM_H_

#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// As base/rms_norm.h.
void RmsNorm(const Tensor& input, const Tensor& weight, double eps, const Tensor& out);

// As base/add_rms_norm.h. An out can be an input.
void AddRmsNorm(const Tensor& input, const Tensor& residual, const Tensor& weight, double eps,
                const Tensor& out, const Tensor& residual_out);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_NORM_H_
