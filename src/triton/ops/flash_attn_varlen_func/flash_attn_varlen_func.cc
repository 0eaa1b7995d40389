#include "base/flash_attn_varlen_func.h"

#include "triton/flash_attention.h"
#include "triton/flash_attn_varlen_func.h"

namespace infini::ops {
namespace {

bool IsCountable(const Invocation& call) {
  FlashAttention attention;
  return VarlenAttentionOf(call, &attention) && triton::HasCountablePlaces(call, attention);
}

}  // namespace

template <>
struct Operator<FlashAttnVarlenFunc, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{FlashAttnVarlenFunc::kRequirements.types, &IsCountable,
                                  triton::kFlashLimit};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation) {
    FlashAttention attention;
    VarlenAttentionOf(invocation, &attention);
    triton::FlashAttend(FlashAttnVarlenFunc::kName, &InfiniOpsTritonFlashAttnVarlenFunc, invocation,
                        attention, invocation.arguments[5].scalar.To<std::int64_t>());
  }
};

INFINI_OPS_REGISTER(FlashAttnVarlenFunc, Device::Type::kNvidia, 9);

}  // namespace infini::ops
