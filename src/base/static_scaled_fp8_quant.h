#ifndef INFINI_OPS_BASE_STATIC_SCALED_FP8_QUANT_H_
#define INFINI_OPS_BASE_STATIC_SCALED_FP8_QUANT_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// result = input / scale in float8_e4m3fn, as vLLM's static_scaled_fp8_quant: multiplied by 1 /
// scale in float32, limited to +-448, and rounded to nearest, ties to even. A NaN stays one.
// `scale` has one element.
class StaticScaledFp8Quant : public OperatorBase<StaticScaledFp8Quant> {
 public:
  static constexpr char kName[] = "static_scaled_fp8_quant";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      {Parameter::Type::kTensor, "scale"},
      Parameter(Parameter::Type::kTensor, "result").Out(),
  };
  static constexpr Requirements kRequirements = {
      kSmallFloatTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kTensorScale, "a result of the input's shape and a scale of one element"}},
      0,
      0,
      {{Places(1), kFloat32Type}, {Places(2), kFloat8Type}}};

  static void Call(const Tensor& input, const Tensor& scale, const Tensor& result,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, scale, result}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_STATIC_SCALED_FP8_QUANT_H_
