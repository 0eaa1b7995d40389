#ifndef INFINI_OPS_BASE_TOPK_SIGMOID_H_
#define INFINI_OPS_BASE_TOPK_SIGMOID_H_

#include <optional>

#include "infini/ops/operator.h"

namespace infini::ops {

// The experts of each token, as topk_sigmoid of vLLM: as base/topk_softmax.h, with the sigmoid of
// each score in place of the softmax. A NaN has a weight NaN. An infinity has the weight 1 or 0.
class TopkSigmoid : public OperatorBase<TopkSigmoid> {
 public:
  static constexpr char kName[] = "topk_sigmoid";
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

#endif  // INFINI_OPS_BASE_TOPK_SIGMOID_H_
