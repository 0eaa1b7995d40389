#include "base/flash_attn_with_kvcache.h"

#include "cpu/flash_attention.h"

namespace infini::ops {

template <>
struct Operator<FlashAttnWithKvcache, Device::Type::kCpu, 0> {
  static void Run(const Invocation& call) {
    FlashAttention attention;
    CachedAttentionOf(call, &attention);
    cpu::FlashAttend({FlashAttnWithKvcache::kName, "cache_seqlens"}, attention,
                     attention.query_rows, attention.key_rows);
  }
};

INFINI_OPS_REGISTER(FlashAttnWithKvcache, Device::Type::kCpu, 0);

}  // namespace infini::ops
