#ifndef INFINI_OPS_BASE_FUSED_ADD_RMS_NORM_H_
#define INFINI_OPS_BASE_FUSED_ADD_RMS_NORM_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// `AddRmsNorm` in place: `residual` becomes the sum, and `input` the normalized sum.
class FusedAddRmsNorm : public OperatorBase<FusedAddRmsNorm> {
 public:
  static constexpr char kName[] = "fused_add_rms_norm";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      Parameter(Parameter::Type::kTensor, "input").InPlace(),
      Parameter(Parameter::Type::kTensor, "residual").InPlace(),
      {Parameter::Type::kTensor, "weight"},
      Parameter(Parameter::Type::kFloat, "eps").Default(1e-6),
  };
  static constexpr Requirements kRequirements = {
      {kSmallFloatTypes.bits,
       "type (float16, bfloat16 or float32), or of a 16-bit one with a float32 weight", Places(2)},
      Typing::kOne,
      Reading::kOnce,
      {{Condition::kAddNorm,
        "a weight of the size of the last dimension, and the others of one shape"}}};

  static void Call(const Tensor& input, const Tensor& residual, const Tensor& weight,
                   double eps = 1e-6, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, residual, weight, eps}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_FUSED_ADD_RMS_NORM_H_
