#include "base/gemm.h"
#include "cuda/product.h"

namespace infini::ops {

template <>
struct Operator<Gemm, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kFloatTypes};

  static void Run(const Invocation& call) { cuda::Multiply(call, GemmOf); }

  static void ClearCache() { cuda::ClearProductCache(); }
};

INFINI_OPS_REGISTER(Gemm, cuda::kDevice, 0);

}  // namespace infini::ops
