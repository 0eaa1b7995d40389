#ifndef INFINI_OPS_BASE_SCALED_DOT_PRODUCT_ATTENTION_H_
#define INFINI_OPS_BASE_SCALED_DOT_PRODUCT_ATTENTION_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// out = softmax(scale * query @ key^T + attn_mask) @ value, as
// torch.nn.functional.scaled_dot_product_attention.
//
// `query` is [..., L, E], `key` [..., S, E], `value` [..., S, Ev] and `out` [..., L, Ev]. The mask
// broadcasts to [..., L, S]: a bool one is true where a query sees a key, another one is added.
// With `is_causal`, query i sees the keys up to i. Without `scale` it is 1 / sqrt(E). With
// `enable_gqa`, the heads of `key` and `value`, their third dimension from the end, divide those of
// `query`. The result of a query that sees no key is 0.
class ScaledDotProductAttention : public OperatorBase<ScaledDotProductAttention> {
 public:
  static constexpr char kName[] = "scaled_dot_product_attention";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "query"},
      {Parameter::Type::kTensor, "key"},
      {Parameter::Type::kTensor, "value"},
      Parameter(Parameter::Type::kTensor, "attn_mask").Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kFloat, "dropout_p").Default(0.0),
      Parameter(Parameter::Type::kBool, "is_causal").Default(false),
      Parameter(Parameter::Type::kFloat, "scale").Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kBool, "enable_gqa").Default(false),
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      {kSmallFloatTypes.bits, "type (float16, bfloat16 or float32)", Places(3)},
      Typing::kOne,
      Reading::kOften,
      {{Condition::kAttention,
        "a query [..., L, E], a key [..., S, E], a value [..., S, Ev], an out [..., L, Ev], an "
        "attn_mask that broadcasts to [..., L, S], whose type can also be bool or float32, and a "
        "dropout_p of 0; leading dimensions broadcast, or with enable_gqa the heads of key and "
        "value divide those of query"}},
      0,
      Places(3)};

  static void Call(const Tensor& query, const Tensor& key, const Tensor& value,
                   const std::optional<Tensor>& attn_mask, double dropout_p, bool is_causal,
                   const std::optional<double>& scale, bool enable_gqa, const Tensor& out,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, out},
             options);
  }

  static void Call(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& out,
                   const CallOptions& options = {}) {
    Call(query, key, value, std::nullopt, 0, false, std::nullopt, false, out, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_SCALED_DOT_PRODUCT_ATTENTION_H_
