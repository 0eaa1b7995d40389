#ifndef INFINI_OPS_BASE_DYNAMIC_PER_TOKEN_SCALED_FP8_QUANT_H_
#define INFINI_OPS_BASE_DYNAMIC_PER_TOKEN_SCALED_FP8_QUANT_H_

#include <optional>

#include "infini/ops/operator.h"

namespace infini::ops {

// result = input / scale in float8_e4m3fn, with a scale for each row of the input, as vLLM's
// dynamic_per_token_scaled_fp8_quant. The largest magnitude of a row, or `scale_ub` if that is
// smaller, becomes 448. A scale is at least 1 / (448 * 512). NaN stays NaN, and has no magnitude.
//
// `scale` is [tokens, 1], or has the shape of the input with a last dimension of 1.
class DynamicPerTokenScaledFp8Quant : public OperatorBase<DynamicPerTokenScaledFp8Quant> {
 public:
  static constexpr char kName[] = "dynamic_per_token_scaled_fp8_quant";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      Parameter(Parameter::Type::kTensor, "scale_ub").Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kTensor, "result").Out(),
      Parameter(Parameter::Type::kTensor, "scale").Out(),
  };
  static constexpr Requirements kRequirements = {
      kSmallFloatTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kTokenScale,
        "rows that are not empty, a result of the input's shape, a scale [tokens, 1] or [..., 1] "
        "and a scale_ub of one element"}},
      0,
      0,
      {{Places(1, 3), kFloat32Type}, {Places(2), kFloat8Type}}};

  static void Call(const Tensor& input, const std::optional<Tensor>& scale_ub, const Tensor& result,
                   const Tensor& scale, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, scale_ub, result, scale}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_DYNAMIC_PER_TOKEN_SCALED_FP8_QUANT_H_
