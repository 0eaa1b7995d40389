#ifndef INFINI_OPS_BASE_LINEAR_H_
#define INFINI_OPS_BASE_LINEAR_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// out = input @ weight^T + bias: `input` is [..., in], `weight` [out, in] and `bias` [out], or
// `weight` [in] and `bias` []. `bias` is optional.
class Linear : public OperatorBase<Linear> {
 public:
  static constexpr char kName[] = "linear";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      {Parameter::Type::kTensor, "weight"},
      Parameter(Parameter::Type::kTensor, "bias").Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      kRealTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kLinear,
        "a weight [out, in] and a bias [out], or a weight [in] and a bias [], with an out of the "
        "product's shape"}}};

  static void Call(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, weight, bias, out}, options);
  }

  static void Call(const Tensor& input, const Tensor& weight, const Tensor& out,
                   const CallOptions& options = {}) {
    Call(input, weight, std::nullopt, out, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_LINEAR_H_
