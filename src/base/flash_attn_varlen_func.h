#ifndef INFINI_OPS_BASE_FLASH_ATTN_VARLEN_FUNC_H_
#define INFINI_OPS_BASE_FLASH_ATTN_VARLEN_FUNC_H_

#include <cstdint>
#include <optional>

#include "infini/ops/operator.h"

namespace infini::ops {

// Attention of sequences of different lengths, as flash_attn_varlen_func of flash-attention.
//
// `q` and `out` are [rows, heads, head_size], and sequence i has the rows from cu_seqlens_q[i] to
// before cu_seqlens_q[i + 1], at most `max_seqlen_q`. Without `block_table`, `k` and `v` are [rows,
// key_heads, head_size], and the keys of a sequence the same of `cu_seqlens_k`. With it, they are
// caches [blocks, block_size, key_heads, head_size]: key j of sequence i is row j % block_size of
// block block_table[i, j / block_size]. `seqused_k` has the number of keys of each sequence that
// are used, without which all are; a paged call can do without `cu_seqlens_k` then. The heads of
// `k` and `v` divide those of `q`. The head_size of `v` and `out` can be another one.
//
// The last query and the last key of a sequence are at the same place. A query sees the keys from
// `window_size_left` before its place to `window_size_right` after it, all of one side if that is
// negative, and none after its place if `causal`. The scores are q @ k^T * softmax_scale, which is
// 1 / sqrt(head_size) by default; then softcap * tanh(scores / softcap) if `softcap` is not 0; less
// the slope of the head, from `alibi_slopes` [heads] or [sequences, heads], times the distance.
// `softmax_lse` [heads, rows] gets the logarithm of the sum of their exponentials.
//
// A query that sees no key has the result 0, and the logarithm -infinity. Rows of no sequence are
// not written. The lengths and blocks are checked before anything is written.
class FlashAttnVarlenFunc : public OperatorBase<FlashAttnVarlenFunc> {
 public:
  static constexpr char kName[] = "flash_attn_varlen_func";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "q"},
      {Parameter::Type::kTensor, "k"},
      {Parameter::Type::kTensor, "v"},
      {Parameter::Type::kTensor, "cu_seqlens_q"},
      Parameter(Parameter::Type::kTensor, "cu_seqlens_k").Optional(),
      {Parameter::Type::kInt, "max_seqlen_q"},
      {Parameter::Type::kInt, "max_seqlen_k"},
      Parameter(Parameter::Type::kTensor, "seqused_k").Optional().Default(std::nullopt),
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
       Places(14, 16)},
      Typing::kOne,
      Reading::kOften,
      {{Condition::kVarlenAttention,
        "q [rows, heads, head_size], k and v [rows, key_heads, head_size], or with a block_table "
        "[sequences, most_blocks] caches [blocks, block_size, key_heads, head_size], where "
        "key_heads divides heads, cu_seqlens_q and cu_seqlens_k [sequences + 1] and seqused_k "
        "[sequences], of which paged calls need one of the last two, alibi_slopes [heads] or "
        "[sequences, heads], a softcap of at least 0, an out [rows, heads, head_size of v] and a "
        "softmax_lse [heads, rows]"}},
      Places(3, 4, 7, 8)};

  static void Call(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_seqlens_q,
                   const std::optional<Tensor>& cu_seqlens_k, std::int64_t max_seqlen_q,
                   std::int64_t max_seqlen_k, const std::optional<Tensor>& seqused_k,
                   const std::optional<Tensor>& block_table,
                   const std::optional<double>& softmax_scale, bool causal,
                   std::int64_t window_size_left, std::int64_t window_size_right, double softcap,
                   const std::optional<Tensor>& alibi_slopes, const Tensor& out,
                   const std::optional<Tensor>& softmax_lse = std::nullopt,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload,
             {q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_k,
              block_table, softmax_scale, causal, window_size_left, window_size_right, softcap,
              alibi_slopes, out, softmax_lse},
             options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_FLASH_ATTN_VARLEN_FUNC_H_
