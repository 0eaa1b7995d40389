#include "base/matmul.h"
#include "cuda/product.h"

namespace infini::ops {

template <>
struct Operator<Matmul, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kFloatTypes};

  static void Run(const Invocation& call) { cuda::Multiply(call, MatmulOf); }

  static void ClearCache() { cuda::ClearProductCache(); }
};

INFINI_OPS_REGISTER(Matmul, cuda::kDevice, 0);

}  // namespace infini::ops
