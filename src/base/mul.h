#ifndef INFINI_OPS_BASE_MUL_H_
#define INFINI_OPS_BASE_MUL_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// out = input * other, broadcast to the shape of `out`.
class Mul : public OperatorBase<Mul> {
 public:
  static constexpr char kName[] = "mul";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      {Parameter::Type::kTensor, "other"},
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      kRealTypes,
      Typing::kOne,
      Reading::kOnce,
      {{Condition::kElementwise, "an out of the shape that they broadcast to"}}};

  static void Call(const Tensor& input, const Tensor& other, const Tensor& out,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, other, out}, options);
  }

  // Only PyTorch accepts a number instead of `other`.
  static void Call(const Tensor& input, const Scalar& other, const Tensor& out,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "Scalar_out");
    Dispatch(overload, {input, other, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_MUL_H_
