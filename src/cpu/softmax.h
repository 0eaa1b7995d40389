#ifndef INFINI_OPS_CPU_SOFTMAX_H_
#define INFINI_OPS_CPU_SOFTMAX_H_

#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// Softmax of `input * scale` over the last dimension. If it `is_causal`, each row sees only the
// columns of base/causal_softmax.h.
void Softmax(const Tensor& input, double scale, bool is_causal, const Tensor& out);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_SOFTMAX_H_
