#include "base/flash_attn_with_kvcache.h"

#include "triton/flash_attention.h"
#include "triton/flash_attn_with_kvcache.h"

namespace infini::ops {
namespace {

bool IsCountable(const Invocation& call) {
  FlashAttention attention;
  return CachedAttentionOf(call, &attention) && triton::HasCountablePlaces(call, attention);
}

}  // namespace

template <>
struct Operator<FlashAttnWithKvcache, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{FlashAttnWithKvcache::kRequirements.types, &IsCountable,
                                  triton::kFlashLimit};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation) {
    FlashAttention attention;
    CachedAttentionOf(invocation, &attention);
    triton::FlashAttend(FlashAttnWithKvcache::kName, &InfiniOpsTritonFlashAttnWithKvcache,
                        invocation, attention, attention.query_rows);
  }
};

INFINI_OPS_REGISTER(FlashAttnWithKvcache, Device::Type::kNvidia, 9);

}  // namespace infini::ops
