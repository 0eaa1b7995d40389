#ifndef INFINI_OPS_BASE_CAT_H_
#define INFINI_OPS_BASE_CAT_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// out = the tensors concatenated along `dim`; a negative `dim` counts from the last dimension.
class Cat : public OperatorBase<Cat> {
 public:
  static constexpr char kName[] = "cat";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      Parameter(Parameter::Type::kTensor, "tensors").List(),
      Parameter(Parameter::Type::kInt, "dim").Default(0),
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      kStoredTypes,
      Typing::kOne,
      Reading::kOnce,
      {{Condition::kConcatenation,
        "an out of their concatenated shape; their shapes may differ only in dimension `dim`"}}};

  static void Call(Span<Tensor> tensors, std::int64_t dim, const Tensor& out,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {tensors, dim, out}, options);
  }

  static void Call(Span<Tensor> tensors, const Tensor& out, const CallOptions& options = {}) {
    Call(tensors, 0, out, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_CAT_H_
