// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_INDEX_PUT_INPLACE_H_
#define INFINI_OPS_BASE_INDEX_PUT_INPLACE_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class IndexPutInplace : public OperatorBase<IndexPutInplace> {
 public:
  static constexpr char kName[] = "index_put_inplace";

  // index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)
  static void Call(const Tensor& input, Span<Tensor> indices, const Tensor& values, bool accumulate, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "");
    Dispatch(overload, {input, indices, values, accumulate}, options);
  }

  static void Call(const Tensor& input, Span<Tensor> indices, const Tensor& values, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "");
    Dispatch(overload, {input, indices, values, false}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_INDEX_PUT_INPLACE_H_
