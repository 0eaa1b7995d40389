#ifndef INFINI_OPS_BASE_ADD_H_
#define INFINI_OPS_BASE_ADD_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// out = input + alpha * other, broadcast to the shape of `out`.
//
// This header is written by hand, so the generator does not generate it. Slot 8 is still the
// PyTorch backend.
class Add : public OperatorBase<Add> {
 public:
  static constexpr char kName[] = "add";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      {Parameter::Type::kTensor, "other"},
      Parameter(Parameter::Type::kScalar, "alpha").Default(1),
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      kRealTypes,
      Typing::kOne,
      Reading::kOnce,
      {{Condition::kFactors, "an alpha that the type can hold"},
       {Condition::kElementwise, "an out of the shape that they broadcast to"}}};

  static void Call(const Tensor& input, const Tensor& other, const Scalar& alpha, const Tensor& out,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, other, alpha, out}, options);
  }

  static void Call(const Tensor& input, const Tensor& other, const Tensor& out,
                   const CallOptions& options = {}) {
    Call(input, other, 1, out, options);
  }

  // Only PyTorch accepts a number instead of `other`.
  static void Call(const Tensor& input, const Scalar& other, const Scalar& alpha, const Tensor& out,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "Scalar_out");
    Dispatch(overload, {input, other, alpha, out}, options);
  }

  static void Call(const Tensor& input, const Scalar& other, const Tensor& out,
                   const CallOptions& options = {}) {
    Call(input, other, 1, out, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_ADD_H_
