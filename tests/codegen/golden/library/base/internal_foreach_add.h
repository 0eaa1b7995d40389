// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_INTERNAL_FOREACH_ADD_H_
#define INFINI_OPS_BASE_INTERNAL_FOREACH_ADD_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class InternalForeachAdd : public OperatorBase<InternalForeachAdd> {
 public:
  static constexpr char kName[] = "internal_foreach_add";

  // _foreach_add.Scalar_out(Tensor[] self, Scalar scalar, *, Tensor(a!)[] out) -> ()
  static void Call(Span<Tensor> input, const Scalar& scalar, Span<Tensor> out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "Scalar_out");
    Dispatch(overload, {input, scalar, out}, options);
  }

  // _foreach_add.List_out(Tensor[] self, Tensor[] other, *, Scalar alpha=1, Tensor(a!)[] out) -> ()
  static void Call(Span<Tensor> input, Span<Tensor> other, const Scalar& alpha, Span<Tensor> out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "List_out");
    Dispatch(overload, {input, other, alpha, out}, options);
  }

  static void Call(Span<Tensor> input, Span<Tensor> other, Span<Tensor> out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "List_out");
    Dispatch(overload, {input, other, 1, out}, options);
  }

  // _foreach_add.ScalarList_out(Tensor[] self, Scalar[] scalars, *, Tensor(a!)[] out) -> ()
  static void Call(Span<Tensor> input, Span<Scalar> scalars, Span<Tensor> out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "ScalarList_out");
    Dispatch(overload, {input, scalars, out}, options);
  }

  // _foreach_add.Tensor_out(Tensor[] self, Tensor other, *, Scalar alpha=1, Tensor(a!)[] out) -> ()
  static void Call(Span<Tensor> input, const Tensor& other, const Scalar& alpha, Span<Tensor> out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "Tensor_out");
    Dispatch(overload, {input, other, alpha, out}, options);
  }

  static void Call(Span<Tensor> input, const Tensor& other, Span<Tensor> out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "Tensor_out");
    Dispatch(overload, {input, other, 1, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_INTERNAL_FOREACH_ADD_H_
