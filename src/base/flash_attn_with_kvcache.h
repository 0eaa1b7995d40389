#ifndef INFINI_OPS_BASE_FLASH_ATTN_WITH_KVCACHE_H_
#define INFINI_OPS_BASE_FLASH_ATTN_WITH_KVCACHE_H_

#include <cstdint>
#include <optional>

#include "infini/ops/operator.h"

namespace infini::ops {

// Attention of a few new tokens of each sequence to its cache, as flash_attn_with_kvcache of
// flash-attention, which neither stores new keys and values nor rotates.
//
// `q` and `out` are [sequences, tokens, heads, head_size], and `cache_seqlens` [sequences] has the
// number of keys of each. Without `block_table`, the caches are [sequences, rows, key_heads,
// head_size], otherwise in blocks as those of `FlashAttnVarlenFunc`, whose other parameters these
// are, too. `softmax_lse` is [sequences, heads, tokens].
class FlashAttnWithKvcache : public OperatorBase<FlashAttnWithKvcache> {
 public:
  static constexpr char kName[] = "flash_attn_with_kvcache";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "q"},
      {Parameter::Type::kTensor, "k_cache"},
      {Parameter::Type::kTensor, "v_cache"},
      {Parameter::Type::kTensor, "cache_seqlens"},
      Parameter(Parameter::Type::kTensor, "block_table").Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kFloat, "softmax_scale").Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kBool, "causal").Default(false),
      Parameter(Parameter::Type::kInt, "window_size_left").Default(-1),
      Parameter(Parameter::Type::kInt, "window_size_right").Default(-1),
      Parameter(Parameter::Type::kFloat, "softcap").Default(0.0),
      Parameter(Parameter::Type::kTensor, "alibi_slopes").Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kTensor, "out").Out(),
      Parameter(Parameter::Type::kTensor, "softmax_lse").Optional().Default(std::nullopt).Out(),
  };
  static constexpr Requirements kRequirements = {
      {kSmallFloatTypes.bits,
       "type (float16, bfloat16 or float32), and alibi_slopes and softmax_lse of float32",
       Places(10, 12)},
      Typing::kOne,
      Reading::kOften,
      {{Condition::kCachedAttention,
        "q [sequences, tokens, heads, head_size], caches [sequences, rows, key_heads, head_size], "
        "or with a block_table [sequences, most_blocks] [blocks, block_size, key_heads, "
        "head_size], where key_heads divides heads, cache_seqlens [sequences], alibi_slopes "
        "[heads] or [sequences, heads], a softcap of at least 0, an out [sequences, tokens, heads, "
        "head_size of v_cache] and a softmax_lse [sequences, heads, tokens]"}},
      Places(3, 4)};

  static void Call(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                   const Tensor& cache_seqlens, const std::optional<Tensor>& block_table,
                   const std::optional<double>& softmax_scale, bool causal,
                   std::int64_t window_size_left, std::int64_t window_size_right, double softcap,
                   const std::optional<Tensor>& alibi_slopes, const Tensor& out,
                   const std::optional<Tensor>& softmax_lse = std::nullopt,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload,
             {q, k_cache, v_cache, cache_seqlens, block_table, softmax_scale, causal,
              window_size_left, window_size_right, softcap, alibi_slopes, out, softmax_lse},
             options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_FLASH_ATTN_WITH_KVCACHE_H_
