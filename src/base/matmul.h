#ifndef INFINI_OPS_BASE_MATMUL_H_
#define INFINI_OPS_BASE_MATMUL_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// out = input @ other, like torch.matmul: a one-dimensional `input` is a row, a one-dimensional
// `other` is a column, and the leading dimensions broadcast.
class Matmul : public OperatorBase<Matmul> {
 public:
  static constexpr char kName[] = "matmul";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      {Parameter::Type::kTensor, "other"},
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      kRealTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kMatmul, "an out of the shape of their product"}}};

  static void Call(const Tensor& input, const Tensor& other, const Tensor& out,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, other, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_MATMUL_H_
