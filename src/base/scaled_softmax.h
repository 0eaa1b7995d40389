#ifndef INFINI_OPS_BASE_SCALED_SOFTMAX_H_
#define INFINI_OPS_BASE_SCALED_SOFTMAX_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// Softmax of `input * scale` over the last dimension. The products are not rounded to the type of
// the tensors.
class ScaledSoftmax : public OperatorBase<ScaledSoftmax> {
 public:
  static constexpr char kName[] = "scaled_softmax";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      {Parameter::Type::kFloat, "scale"},
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      kFloatTypes,
      Typing::kOne,
      Reading::kOnce,
      {{Condition::kRows, "an input and an out of one shape of at least one dimension"}}};

  static void Call(const Tensor& input, double scale, const Tensor& out,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, scale, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_SCALED_SOFTMAX_H_
