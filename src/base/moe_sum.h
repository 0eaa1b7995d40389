#ifndef INFINI_OPS_BASE_MOE_SUM_H_
#define INFINI_OPS_BASE_MOE_SUM_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// The sum of the results of each token's experts, as moe_sum of vLLM: `out` [tokens, hidden] is the
// sum of `input` [tokens, k, hidden] over k, in float32 and in the order of k, rounded once.
class MoeSum : public OperatorBase<MoeSum> {
 public:
  static constexpr char kName[] = "moe_sum";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      kSmallFloatTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kExpertSum, "an input [tokens, k, hidden] and an out [tokens, hidden]"}}};

  static void Call(const Tensor& input, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_MOE_SUM_H_
