// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_ABS_H_
#define INFINI_OPS_BASE_ABS_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class Abs : public OperatorBase<Abs> {
 public:
  static constexpr char kName[] = "abs";

  // abs.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& input, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_ABS_H_
