// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_INTERNAL_SOFTMAX_H_
#define INFINI_OPS_BASE_INTERNAL_SOFTMAX_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class InternalSoftmax : public OperatorBase<InternalSoftmax> {
 public:
  static constexpr char kName[] = "internal_softmax";

  // _softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& input, std::int64_t dim, bool half_to_float, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, dim, half_to_float, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_INTERNAL_SOFTMAX_H_
