#ifndef INFINI_OPS_BASE_SILU_AND_MUL_H_
#define INFINI_OPS_BASE_SILU_AND_MUL_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// out = silu(first) * second, of the halves of the input's last dimension, with
// silu(x) = x * sigmoid(x). Computed in float32.
class SiluAndMul : public OperatorBase<SiluAndMul> {
 public:
  static constexpr char kName[] = "silu_and_mul";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      kSmallFloatTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kHalves, "an out of the input's shape with half of its last dimension"}}};

  static void Call(const Tensor& input, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_SILU_AND_MUL_H_
