#ifndef INFINI_OPS_BASE_ADD_RMS_NORM_H_
#define INFINI_OPS_BASE_ADD_RMS_NORM_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// residual_out = input + residual, and out = the sum / sqrt(mean(sum^2) + eps) * weight, with the
// mean over the last dimension, whose size `weight` has. `out` is computed from the sum before it
// is rounded to the type of `residual_out`.
class AddRmsNorm : public OperatorBase<AddRmsNorm> {
 public:
  static constexpr char kName[] = "add_rms_norm";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      {Parameter::Type::kTensor, "residual"},
      {Parameter::Type::kTensor, "weight"},
      Parameter(Parameter::Type::kFloat, "eps").Default(1e-6),
      Parameter(Parameter::Type::kTensor, "out").Out(),
      Parameter(Parameter::Type::kTensor, "residual_out").Out(),
  };
  static constexpr Requirements kRequirements = {
      {kSmallFloatTypes.bits,
       "type (float16, bfloat16 or float32), or of a 16-bit one with a float32 weight", Places(2)},
      Typing::kOne,
      Reading::kOnce,
      {{Condition::kAddNorm,
        "a weight of the size of the last dimension, and the others of one shape"}}};

  static void Call(const Tensor& input, const Tensor& residual, const Tensor& weight, double eps,
                   const Tensor& out, const Tensor& residual_out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, residual, weight, eps, out, residual_out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_ADD_RMS_NORM_H_
