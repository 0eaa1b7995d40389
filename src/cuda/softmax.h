#ifndef INFINI_OPS_CUDA_SOFTMAX_H_
#define INFINI_OPS_CUDA_SOFTMAX_H_

#include <cstdint>

#include "infini/ops/operator.h"

namespace infini::ops::cuda {

// Softmax of `input * scale` over the last dimension. The rows are those of matrices with `queries`
// rows, and each sees only the columns of base/causal_softmax.h: a matrix of one row sees all.
void Softmax(const Invocation& invocation, const Tensor& input, double scale, std::int64_t queries,
             const Tensor& out);

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_SOFTMAX_H_
