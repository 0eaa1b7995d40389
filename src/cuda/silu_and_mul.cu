#include "base/silu_and_mul.h"
#include "cuda/gated.h"

namespace infini::ops {

template <>
struct Operator<SiluAndMul, cuda::kDevice, 0> {
  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& out) {
    cuda::RunGatedHalves<cuda::SiluFunction>(invocation, input, out);
  }
};

INFINI_OPS_REGISTER(SiluAndMul, cuda::kDevice, 0);

}  // namespace infini::ops
