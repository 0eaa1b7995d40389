#ifndef INFINI_OPS_BASE_RMS_NORM_H_
#define INFINI_OPS_BASE_RMS_NORM_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// out = input / sqrt(mean(input^2) + eps) * weight, with the mean over the last dimension, whose
// size `weight` has. Sums are computed in float32 or wider.
class RmsNorm : public OperatorBase<RmsNorm> {
 public:
  static constexpr char kName[] = "rms_norm";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      {Parameter::Type::kTensor, "weight"},
      Parameter(Parameter::Type::kFloat, "eps").Default(1e-6),
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      {kFloatTypes.bits, "floating-point type, or of a 16-bit one with a float32 weight",
       Places(1)},
      Typing::kOne,
      Reading::kOnce,
      {{Condition::kNorm,
        "a weight of the size of the last dimension and an out of the input's shape"}}};

  static void Call(const Tensor& input, const Tensor& weight, double eps, const Tensor& out,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, weight, eps, out}, options);
  }

  static void Call(const Tensor& input, const Tensor& weight, const Tensor& out,
                   const CallOptions& options = {}) {
    Call(input, weight, 1e-6, out, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_RMS_NORM_H_
