// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_CAT_H_
#define INFINI_OPS_BASE_CAT_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class Cat : public OperatorBase<Cat> {
 public:
  static constexpr char kName[] = "cat";

  // cat.out(Tensor[] tensors, int dim=0, *, Tensor(a!) out) -> Tensor(a!)
  static void Call(Span<Tensor> tensors, std::int64_t dim, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {tensors, dim, out}, options);
  }

  static void Call(Span<Tensor> tensors, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {tensors, 0, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_CAT_H_
