#ifndef INFINI_OPS_BASE_GEMM_H_
#define INFINI_OPS_BASE_GEMM_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// out = alpha * op(a) @ op(b) + beta * out, where op optionally transposes the last two dimensions.
//
// `a` is [..., m, k], `b` [..., k, n] and `out` [..., m, n] after op. `out` has the shape that the
// leading dimensions of the inputs broadcast to. If `beta` is 0, the old values of `out` are not
// read.
class Gemm : public OperatorBase<Gemm> {
 public:
  static constexpr char kName[] = "gemm";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "a"},
      {Parameter::Type::kTensor, "b"},
      Parameter(Parameter::Type::kScalar, "alpha").Default(1),
      Parameter(Parameter::Type::kScalar, "beta").Default(0),
      Parameter(Parameter::Type::kBool, "trans_a").Default(false),
      Parameter(Parameter::Type::kBool, "trans_b").Default(false),
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      kRealTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kFactors, "an alpha and a beta that the type can hold"},
       {Condition::kGemm, "an out of the shape of their product, after `trans_a` and `trans_b`"}}};

  static void Call(const Tensor& a, const Tensor& b, const Scalar& alpha, const Scalar& beta,
                   bool trans_a, bool trans_b, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {a, b, alpha, beta, trans_a, trans_b, out}, options);
  }

  static void Call(const Tensor& a, const Tensor& b, const Tensor& out,
                   const CallOptions& options = {}) {
    Call(a, b, 1, 0, false, false, out, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_GEMM_H_
