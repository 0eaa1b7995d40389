#ifndef INFINI_OPS_BASE_SWIGLU_H_
#define INFINI_OPS_BASE_SWIGLU_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// out = input * gate * sigmoid(gate), broadcast to the shape of `out`.
class Swiglu : public OperatorBase<Swiglu> {
 public:
  static constexpr char kName[] = "swiglu";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      {Parameter::Type::kTensor, "gate"},
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      kFloatTypes,
      Typing::kOne,
      Reading::kOnce,
      {{Condition::kElementwise, "an out of the shape that they broadcast to"}}};

  static void Call(const Tensor& input, const Tensor& gate, const Tensor& out,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, gate, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_SWIGLU_H_
