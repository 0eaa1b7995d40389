#ifndef INFINI_OPS_BASE_DYNAMIC_SCALED_FP8_QUANT_H_
#define INFINI_OPS_BASE_DYNAMIC_SCALED_FP8_QUANT_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// `StaticScaledFp8Quant` with the scale of the largest magnitude, which becomes 448. As in vLLM,
// the magnitude of NaN does not count. If the scale would be 0 or subnormal, it is 1 / (448 * 512),
// which is vLLM's least scale of tokens.
class DynamicScaledFp8Quant : public OperatorBase<DynamicScaledFp8Quant> {
 public:
  static constexpr char kName[] = "dynamic_scaled_fp8_quant";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      Parameter(Parameter::Type::kTensor, "result").Out(),
      Parameter(Parameter::Type::kTensor, "scale").Out(),
  };
  static constexpr Requirements kRequirements = {
      kSmallFloatTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kTensorScale, "a result of the input's shape and a scale of one element"}},
      0,
      0,
      {{Places(1), kFloat8Type}, {Places(2), kFloat32Type}}};

  static void Call(const Tensor& input, const Tensor& result, const Tensor& scale,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, result, scale}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_DYNAMIC_SCALED_FP8_QUANT_H_
