#include "base/flash_attn_varlen_func.h"

#include "cpu/flash_attention.h"

namespace infini::ops {

template <>
struct Operator<FlashAttnVarlenFunc, Device::Type::kCpu, 0> {
  static void Run(const Invocation& call) {
    FlashAttention attention;
    VarlenAttentionOf(call, &attention);
    cpu::FlashAttend({FlashAttnVarlenFunc::kName, "seqused_k"}, attention,
                     call.arguments[5].scalar.To<std::int64_t>(),
                     call.arguments[6].scalar.To<std::int64_t>());
  }
};

INFINI_OPS_REGISTER(FlashAttnVarlenFunc, Device::Type::kCpu, 0);

}  // namespace infini::ops
