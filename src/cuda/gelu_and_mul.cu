#include "base/gelu_and_mul.h"
#include "cuda/gated.h"

namespace infini::ops {

template <>
struct Operator<GeluAndMul, cuda::kDevice, 0> {
  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& out) {
    cuda::RunGatedHalves<cuda::GeluFunction>(invocation, input, out);
  }
};

INFINI_OPS_REGISTER(GeluAndMul, cuda::kDevice, 0);

}  // namespace infini::ops
