#ifndef INFINI_OPS_BASE_GELU_TANH_AND_MUL_H_
#define INFINI_OPS_BASE_GELU_TANH_AND_MUL_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// out = gelu(first) * second, of the halves of the input's last dimension, with
// gelu(x) = x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2. Computed in float32.
class GeluTanhAndMul : public OperatorBase<GeluTanhAndMul> {
 public:
  static constexpr char kName[] = "gelu_tanh_and_mul";
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

#endif  // INFINI_OPS_BASE_GELU_TANH_AND_MUL_H_
