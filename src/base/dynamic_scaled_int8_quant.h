#ifndef INFINI_OPS_BASE_DYNAMIC_SCALED_INT8_QUANT_H_
#define INFINI_OPS_BASE_DYNAMIC_SCALED_INT8_QUANT_H_

#include <optional>

#include "infini/ops/operator.h"

namespace infini::ops {

// result = input / scale + azp in int8, with a scale for each row of the input, as vLLM's
// dynamic_scaled_int8_quant. Without `azp`, the largest magnitude of a row becomes 127, and the
// scale of a row of zeros is 0. With it, the range of a row becomes -128 to 127, and the scale of a
// row of one number is its magnitude: vLLM divides by 0 there. A NaN becomes the zero point, and is
// no part of the range.
//
// `scale` and `azp` are [tokens, 1], or have the shape of the input with a last dimension of 1.
class DynamicScaledInt8Quant : public OperatorBase<DynamicScaledInt8Quant> {
 public:
  static constexpr char kName[] = "dynamic_scaled_int8_quant";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      Parameter(Parameter::Type::kTensor, "result").Out(),
      Parameter(Parameter::Type::kTensor, "scale").Out(),
      Parameter(Parameter::Type::kTensor, "azp").Optional().Default(std::nullopt).Out(),
  };
  static constexpr Requirements kRequirements = {
      kSmallFloatTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kTokenScale,
        "rows that are not empty, a result of the input's shape, and a scale and an azp [tokens, "
        "1] or [..., 1]"}},
      0,
      0,
      {{Places(1), kInt8Type}, {Places(2), kFloat32Type}, {Places(3), kInt32Type}}};

  static void Call(const Tensor& input, const Tensor& result, const Tensor& scale,
                   const std::optional<Tensor>& azp = std::nullopt,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, result, scale, azp}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_DYNAMIC_SCALED_INT8_QUANT_H_
