#include "base/reshape_and_cache.h"

#include "triton/cache.h"
#include "triton/reshape_and_cache.h"

namespace infini::ops {

template <>
struct Operator<ReshapeAndCache, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{triton::kCachedTypes, &triton::HasCountableTokens,
                                  triton::kTokenLimit};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& key, const Tensor& value,
                  const Tensor& slot_mapping, const Tensor& key_cache, const Tensor& value_cache) {
    triton::ReshapeAndCache("reshape_and_cache", &InfiniOpsTritonReshapeAndCache, invocation, key,
                            value, slot_mapping, key_cache, value_cache);
  }
};

INFINI_OPS_REGISTER(ReshapeAndCache, Device::Type::kNvidia, 9);

}  // namespace infini::ops
