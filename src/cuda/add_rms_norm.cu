#include "base/add_rms_norm.h"
#include "cuda/norm.h"

namespace infini::ops {

template <>
struct Operator<AddRmsNorm, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kSmallFloatTypes, &cuda::HasSumRows, cuda::kRowsLimit};

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& residual,
                  const Tensor& weight, double eps, const Tensor& out, const Tensor& residual_out) {
    cuda::AddRmsNorm(invocation, input, residual, weight, eps, out, residual_out);
  }
};

INFINI_OPS_REGISTER(AddRmsNorm, cuda::kDevice, 0);

}  // namespace infini::ops
