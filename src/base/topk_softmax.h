#ifndef INFINI_OPS_BASE_TOPK_SOFTMAX_H_
#define INFINI_OPS_BASE_TOPK_SOFTMAX_H_

#include <optional>

#include "infini/ops/operator.h"

namespace infini::ops {

// The experts of each token, as topk_softmax of vLLM.
//
// Row i of `gating_output` [tokens, experts] has the scores of token i. Its `k` experts are those
// of the largest scores or, with an `e_score_correction_bias` [experts], those of the largest sums
// of softmax and bias in float32, the largest first. Of equal ones the lowest index comes first. A
// NaN is larger than every number, as in torch.topk.
//
// `topk_weights` [tokens, k] get the softmax of the scores over all experts, without the bias. With
// `renormalize` they are divided by their sum, unless that is 0. A row that has a NaN, +infinity or
// only -infinity has weights NaN. `topk_indices` [tokens, k] get the experts, and
// `token_expert_indices` [tokens, k] the number j * tokens + i for choice j of token i.
class TopkSoftmax : public OperatorBase<TopkSoftmax> {
 public:
  static constexpr char kName[] = "topk_softmax";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "gating_output"},
      Parameter(Parameter::Type::kBool, "renormalize").Default(false),
      Parameter(Parameter::Type::kTensor, "e_score_correction_bias")
          .Optional()
          .Default(std::nullopt),
      Parameter(Parameter::Type::kTensor, "topk_weights").Out(),
      Parameter(Parameter::Type::kTensor, "topk_indices").Out(),
      Parameter(Parameter::Type::kTensor, "token_expert_indices").Out(),
  };
  static constexpr Requirements kRequirements = {
      kSmallFloatTypes,
      Typing::kAny,
      Reading::kOften,
      {{Condition::kTopkGating,
        "a gating_output [tokens, experts], float32 topk_weights [tokens, k] with k <= experts, "
        "topk_indices and token_expert_indices of their shape, and a float32 "
        "e_score_correction_bias [experts]"}},
      Places(4, 5)};

  static void Call(const Tensor& gating_output, bool renormalize,
                   const std::optional<Tensor>& e_score_correction_bias, const Tensor& topk_weights,
                   const Tensor& topk_indices, const Tensor& token_expert_indices,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload,
             {gating_output, renormalize, e_score_correction_bias, topk_weights, topk_indices,
              token_expert_indices},
             options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_TOPK_SOFTMAX_H_
