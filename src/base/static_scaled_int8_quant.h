#ifndef INFINI_OPS_BASE_STATIC_SCALED_INT8_QUANT_H_
#define INFINI_OPS_BASE_STATIC_SCALED_INT8_QUANT_H_

#include <optional>

#include "infini/ops/operator.h"

namespace infini::ops {

// result = input / scale + azp in int8, as vLLM's static_scaled_int8_quant: divided in float32 and
// rounded to nearest, ties to even, then limited to -128 to 127 with the zero point. A NaN becomes
// the zero point. `scale` and `azp` have one element.
class StaticScaledInt8Quant : public OperatorBase<StaticScaledInt8Quant> {
 public:
  static constexpr char kName[] = "static_scaled_int8_quant";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      {Parameter::Type::kTensor, "scale"},
      Parameter(Parameter::Type::kTensor, "azp").Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kTensor, "result").Out(),
  };
  static constexpr Requirements kRequirements = {
      kSmallFloatTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kTensorScale,
        "a result of the input's shape, and a scale and an azp of one element"}},
      0,
      0,
      {{Places(1), kFloat32Type}, {Places(2), kInt32Type}, {Places(3), kInt8Type}}};

  static void Call(const Tensor& input, const Tensor& scale, const std::optional<Tensor>& azp,
                   const Tensor& result, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, scale, azp, result}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_STATIC_SCALED_INT8_QUANT_H_
