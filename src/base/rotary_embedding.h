#ifndef INFINI_OPS_BASE_ROTARY_EMBEDDING_H_
#define INFINI_OPS_BASE_ROTARY_EMBEDDING_H_

#include <cstdint>
#include <optional>

#include "infini/ops/operator.h"

namespace infini::ops {

// Rotates pairs (x, y) of each head of `query` and `key`, in place, by the angle of the token:
//
//   x, y = x * cos - y * sin, y * cos + x * sin
//
// `positions` is [tokens] or [batch, sequence]. `query` and `key` have these dimensions, and then
// either [heads * head_size] or [heads, head_size]; `key` can have fewer heads, and can be absent.
// Row p of `cos_sin_cache` [positions, rotated] is for position p: its first half are the cosines,
// its second half the sines, which `inverse` negates. `rotated` elements of a head are rotated,
// from `rope_dim_offset` on. The pairs are elements i and i + rotated / 2 if `is_neox`, otherwise
// 2i and 2i + 1.
//
// A position beyond the cache is an error of the CPU before it writes anything. Other devices,
// whose calls do not wait for the positions, leave the heads of that token as they are.
class RotaryEmbedding : public OperatorBase<RotaryEmbedding> {
 public:
  static constexpr char kName[] = "rotary_embedding";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "positions"},
      Parameter(Parameter::Type::kTensor, "query").InPlace(),
      Parameter(Parameter::Type::kTensor, "key").Optional().InPlace(),
      {Parameter::Type::kInt, "head_size"},
      {Parameter::Type::kTensor, "cos_sin_cache"},
      Parameter(Parameter::Type::kBool, "is_neox").Default(true),
      Parameter(Parameter::Type::kInt, "rope_dim_offset").Default(0),
      Parameter(Parameter::Type::kBool, "inverse").Default(false),
  };
  static constexpr Requirements kRequirements = {
      {kSmallFloatTypes.bits,
       "type (float16, bfloat16 or float32), or of a 16-bit one with a float32 cos_sin_cache",
       Places(4)},
      Typing::kOne,
      Reading::kOften,
      {{Condition::kRotary,
        "positions of one or two dimensions, which are also the first ones of query and key, heads "
        "of head_size elements in one or two more dimensions, and a cos_sin_cache of two "
        "dimensions whose rows are even and fit into a head after rope_dim_offset"}},
      Places(0)};

  static void Call(const Tensor& positions, const Tensor& query, const std::optional<Tensor>& key,
                   std::int64_t head_size, const Tensor& cos_sin_cache, bool is_neox = true,
                   std::int64_t rope_dim_offset = 0, bool inverse = false,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload,
             {positions, query, key, head_size, cos_sin_cache, is_neox, rope_dim_offset, inverse},
             options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_ROTARY_EMBEDDING_H_
