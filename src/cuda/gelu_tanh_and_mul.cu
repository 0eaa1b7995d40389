#include "base/gelu_tanh_and_mul.h"
#include "cuda/gated.h"

namespace infini::ops {

template <>
struct Operator<GeluTanhAndMul, cuda::kDevice, 0> {
  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& out) {
    cuda::RunGatedHalves<cuda::GeluTanhFunction>(invocation, input, out);
  }
};

INFINI_OPS_REGISTER(GeluTanhAndMul, cuda::kDevice, 0);

}  // namespace infini::ops
