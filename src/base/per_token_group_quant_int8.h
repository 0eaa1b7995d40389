#ifndef INFINI_OPS_BASE_PER_TOKEN_GROUP_QUANT_INT8_H_
#define INFINI_OPS_BASE_PER_TOKEN_GROUP_QUANT_INT8_H_

#include <cstdint>

#include "infini/ops/operator.h"

namespace infini::ops {

// output_q = input / output_s in int8, with a scale for each group of `group_size` elements of a
// row, as vLLM's per_token_group_quant_int8. The largest magnitude of a group, at least `eps`,
// becomes `int8_max`. Results are rounded to nearest, ties to even, where vLLM truncates them, and
// are within `int8_min` and `int8_max`. NaN becomes 0, and has no magnitude.
//
// `output_s` has the shape of the input, with the number of groups as the last dimension, and any
// strides.
class PerTokenGroupQuantInt8 : public OperatorBase<PerTokenGroupQuantInt8> {
 public:
  static constexpr char kName[] = "per_token_group_quant_int8";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      {Parameter::Type::kInt, "group_size"},
      {Parameter::Type::kFloat, "eps"},
      {Parameter::Type::kFloat, "int8_min"},
      {Parameter::Type::kFloat, "int8_max"},
      Parameter(Parameter::Type::kTensor, "output_q").Out(),
      Parameter(Parameter::Type::kTensor, "output_s").Out(),
  };
  static constexpr Requirements kRequirements = {
      kSmallFloatTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kGroupScale,
        "a group_size that divides the last dimension, a positive eps, limits from -128 to 127 "
        "around 0, an output_q of the input's shape and an output_s [..., groups]"}},
      0,
      0,
      {{Places(5), kInt8Type}, {Places(6), kFloat32Type}}};

  static void Call(const Tensor& input, std::int64_t group_size, double eps, double int8_min,
                   double int8_max, const Tensor& output_q, const Tensor& output_s,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, group_size, eps, int8_min, int8_max, output_q, output_s}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_PER_TOKEN_GROUP_QUANT_INT8_H_
