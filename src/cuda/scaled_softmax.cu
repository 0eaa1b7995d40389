#include "base/scaled_softmax.h"
#include "cuda/rows.h"
#include "cuda/softmax.h"

namespace infini::ops {

template <>
struct Operator<ScaledSoftmax, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kFloatTypes, &cuda::HasRows, cuda::kRowsLimit};

  static void Run(const Invocation& invocation, const Tensor& input, double scale,
                  const Tensor& out) {
    cuda::Softmax(invocation, input, scale, 1, out);
  }
};

INFINI_OPS_REGISTER(ScaledSoftmax, cuda::kDevice, 0);

}  // namespace infini::ops
