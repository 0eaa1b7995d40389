// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_BMM_H_
#define INFINI_OPS_BASE_BMM_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class Bmm : public OperatorBase<Bmm> {
 public:
  static constexpr char kName[] = "bmm";

  // bmm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& input, const Tensor& mat2, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, mat2, out}, options);
  }

  // bmm.dtype_out(Tensor self, Tensor mat2, ScalarType out_dtype, *, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& input, const Tensor& mat2, DataType out_dtype, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "dtype_out");
    Dispatch(overload, {input, mat2, out_dtype, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_BMM_H_
