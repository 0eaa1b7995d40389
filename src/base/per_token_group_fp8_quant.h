#ifndef INFINI_OPS_BASE_PER_TOKEN_GROUP_FP8_QUANT_H_
#define INFINI_OPS_BASE_PER_TOKEN_GROUP_FP8_QUANT_H_

#include <cstdint>

#include "infini/ops/operator.h"

namespace infini::ops {

// output_q = input / output_s in float8_e4m3fn, with a scale for each group of `group_size`
// elements of a row, as vLLM's per_token_group_fp8_quant. The largest magnitude of a group, at
// least `eps`, becomes `fp8_max`. With `scale_ue8m0`, the scale is the next power of two, at least
// that of 1e-10. Results are limited to `fp8_min` and `fp8_max`, and rounded to nearest, ties to
// even. NaN stays NaN, and has no magnitude.
//
// `output_s` has the shape of the input, with the number of groups as the last dimension, and any
// strides.
class PerTokenGroupFp8Quant : public OperatorBase<PerTokenGroupFp8Quant> {
 public:
  static constexpr char kName[] = "per_token_group_fp8_quant";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      {Parameter::Type::kInt, "group_size"},
      {Parameter::Type::kFloat, "eps"},
      {Parameter::Type::kFloat, "fp8_min"},
      {Parameter::Type::kFloat, "fp8_max"},
      Parameter(Parameter::Type::kBool, "scale_ue8m0").Default(false),
      Parameter(Parameter::Type::kTensor, "output_q").Out(),
      Parameter(Parameter::Type::kTensor, "output_s").Out(),
  };
  static constexpr Requirements kRequirements = {
      kSmallFloatTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kGroupScale,
        "a group_size that divides the last dimension, a positive eps, limits from -448 to 448 "
        "around 0, an output_q of the input's shape and an output_s [..., groups]"}},
      0,
      0,
      {{Places(6), kFloat8Type}, {Places(7), kFloat32Type}}};

  static void Call(const Tensor& input, std::int64_t group_size, double eps, double fp8_min,
                   double fp8_max, bool scale_ue8m0, const Tensor& output_q, const Tensor& output_s,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, group_size, eps, fp8_min, fp8_max, scale_ue8m0, output_q, output_s},
             options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_PER_TOKEN_GROUP_FP8_QUANT_H_
