#include "base/causal_softmax.h"
#include "cuda/rows.h"
#include "cuda/softmax.h"

namespace infini::ops {

template <>
struct Operator<CausalSoftmax, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kFloatTypes, &cuda::HasRows, cuda::kRowsLimit};

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& out) {
    cuda::Softmax(invocation, input, 1, input.shape()[input.dimensions() - 2], out);
  }
};

INFINI_OPS_REGISTER(CausalSoftmax, cuda::kDevice, 0);

}  // namespace infini::ops
