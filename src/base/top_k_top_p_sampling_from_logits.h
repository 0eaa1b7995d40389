#ifndef INFINI_OPS_BASE_TOP_K_TOP_P_SAMPLING_FROM_LOGITS_H_
#define INFINI_OPS_BASE_TOP_K_TOP_P_SAMPLING_FROM_LOGITS_H_

#include <cstdint>
#include <optional>

#include "infini/ops/operator.h"

namespace infini::ops {

// Draws a token for each row of `logits` [batch, vocabulary] into `out` [batch], as FlashInfer's
// operator.
//
// The probabilities are the softmax of a row. Two filters set those of other tokens to 0: `top_k`
// keeps the k largest logits, all if it is not positive. `top_p` keeps the fewest of the largest
// probabilities whose sum is at least p, but at least one. Both also keep each token that is as
// likely as the last one that they keep. `top_p` sums the probabilities that `top_k` leaves, scaled
// to the sum 1 ("top_k_first"), or with `joint` those of all tokens.
//
// The token is that of one random number: the first 64 bits of Philox4x32-10 of the key `seed` and
// the counter (offset, row). `top_ks`, `top_ps` and `seeds` [batch] have a number for each row, and
// replace `top_k`, `top_p` and `seed`. With `seeds` the row of the counter is 0, so that a row has
// the same token in any place of any batch. `top_p` is rounded to float32.
//
// A logit of NaN is taken for -infinity. A row without other ones gets the token -1.
class TopKTopPSamplingFromLogits : public OperatorBase<TopKTopPSamplingFromLogits> {
 public:
  static constexpr char kName[] = "top_k_top_p_sampling_from_logits";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "logits"},
      {Parameter::Type::kInt, "top_k"},
      {Parameter::Type::kFloat, "top_p"},
      {Parameter::Type::kInt, "seed"},
      Parameter(Parameter::Type::kInt, "offset").Default(0),
      Parameter(Parameter::Type::kBool, "joint").Default(false),
      Parameter(Parameter::Type::kTensor, "top_ks").Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kTensor, "top_ps").Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kTensor, "seeds").Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      {kSmallFloatTypes.bits, "type (float16, bfloat16 or float32), and top_ps of float32",
       Places(7)},
      Typing::kOne,
      Reading::kOften,
      {{Condition::kSampling,
        "logits [batch, vocabulary] of at most 2^22 columns, and of at least one if there is a "
        "row, a top_p from 0 to 1, and top_ks, top_ps, seeds and an out [batch]"}},
      Places(6, 8, 9)};

  static void Call(const Tensor& logits, std::int64_t top_k, double top_p, std::int64_t seed,
                   std::int64_t offset, bool joint, const std::optional<Tensor>& top_ks,
                   const std::optional<Tensor>& top_ps, const std::optional<Tensor>& seeds,
                   const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {logits, top_k, top_p, seed, offset, joint, top_ks, top_ps, seeds, out},
             options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_TOP_K_TOP_P_SAMPLING_FROM_LOGITS_H_
