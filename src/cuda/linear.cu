#include "base/linear.h"
#include "cuda/product.h"

namespace infini::ops {

template <>
struct Operator<Linear, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kFloatTypes};

  static void Run(const Invocation& call) { cuda::Multiply(call, LinearOf); }

  static void ClearCache() { cuda::ClearProductCache(); }
};

INFINI_OPS_REGISTER(Linear, cuda::kDevice, 0);

}  // namespace infini::ops
