#include "base/reshape_and_cache.h"
#include "cuda/cache.h"
#include "cuda/runtime.h"

namespace infini::ops {

template <>
struct Operator<ReshapeAndCache, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kStoredTypes, &cuda::HasNearElements, cuda::kNearLimit};

  static void Run(const Invocation& invocation, const Tensor& key, const Tensor& value,
                  const Tensor& slot_mapping, const Tensor& key_cache, const Tensor& value_cache) {
    cuda::ReshapeAndCache(invocation, key, value, slot_mapping, key_cache, value_cache);
  }
};

INFINI_OPS_REGISTER(ReshapeAndCache, cuda::kDevice, 0);

}  // namespace infini::ops
