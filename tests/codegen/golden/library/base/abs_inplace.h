// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_ABS_INPLACE_H_
#define INFINI_OPS_BASE_ABS_INPLACE_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class AbsInplace : public OperatorBase<AbsInplace> {
 public:
  static constexpr char kName[] = "abs_inplace";

  // abs_(Tensor(a!) self) -> Tensor(a!)
  static void Call(const Tensor& input, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "");
    Dispatch(overload, {input}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_ABS_INPLACE_H_
