#ifndef INFINI_OPS_BASE_GROUPED_TOPK_H_
#define INFINI_OPS_BASE_GROUPED_TOPK_H_

#include <cstdint>

#include "infini/ops/operator.h"

namespace infini::ops {

// The experts of each token, which come from its best groups of experts, as grouped_topk of vLLM.
//
// Row i of `scores` [tokens, experts] has the scores of token i, which are weights if
// `scoring_func` is 0, and whose sigmoids are the weights if it is 1. Weight and `bias` [experts]
// are added in float32. Of `num_expert_group` groups of consecutive experts, the `topk_group` with
// the largest sum of their two largest sums (or of the only one) are kept. The `topk` experts of
// a token are those of the kept groups with the largest sums, the largest first.
//
// `topk_values` [tokens, topk] get the weights, without the bias. With `renormalize` they are
// divided by their sum, unless that is 0. Then they are multiplied by `routed_scaling_factor`.
// `topk_indices` [tokens, topk] get the experts. Of equal groups and experts the lowest index comes
// first, and a NaN is larger than every number.
class GroupedTopk : public OperatorBase<GroupedTopk> {
 public:
  static constexpr char kName[] = "grouped_topk";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "scores"},
      {Parameter::Type::kInt, "num_expert_group"},
      {Parameter::Type::kInt, "topk_group"},
      {Parameter::Type::kInt, "topk"},
      {Parameter::Type::kBool, "renormalize"},
      {Parameter::Type::kFloat, "routed_scaling_factor"},
      {Parameter::Type::kTensor, "bias"},
      Parameter(Parameter::Type::kInt, "scoring_func").Default(0),
      Parameter(Parameter::Type::kTensor, "topk_values").Out(),
      Parameter(Parameter::Type::kTensor, "topk_indices").Out(),
  };
  static constexpr Requirements kRequirements = {
      kSmallFloatTypes,
      Typing::kAny,
      Reading::kOften,
      {{Condition::kGroupedTopk,
        "scores [tokens, experts], a num_expert_group that divides the experts, a topk_group of 1 "
        "to num_expert_group, a topk of at most the experts of topk_group groups, a bias "
        "[experts], a scoring_func of 0 or 1, and float32 topk_values and topk_indices [tokens, "
        "topk]"}},
      Places(9)};

  static void Call(const Tensor& scores, std::int64_t num_expert_group, std::int64_t topk_group,
                   std::int64_t topk, bool renormalize, double routed_scaling_factor,
                   const Tensor& bias, std::int64_t scoring_func, const Tensor& topk_values,
                   const Tensor& topk_indices, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload,
             {scores, num_expert_group, topk_group, topk, renormalize, routed_scaling_factor, bias,
              scoring_func, topk_values, topk_indices},
             options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_GROUPED_TOPK_H_
