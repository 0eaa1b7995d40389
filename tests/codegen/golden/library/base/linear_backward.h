// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_LINEAR_BACKWARD_H_
#define INFINI_OPS_BASE_LINEAR_BACKWARD_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class LinearBackward : public OperatorBase<LinearBackward> {
 public:
  static constexpr char kName[] = "linear_backward";

  // linear_backward.out(Tensor self, Tensor grad_output, Tensor weight, bool[3] output_mask, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))
  static void Call(const Tensor& input, const Tensor& grad_output, const Tensor& weight, Span<bool> output_mask, const Tensor& out0, const Tensor& out1, const Tensor& out2, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, grad_output, weight, output_mask, out0, out1, out2}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_LINEAR_BACKWARD_H_
