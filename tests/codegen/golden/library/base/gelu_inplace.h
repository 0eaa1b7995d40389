// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_GELU_INPLACE_H_
#define INFINI_OPS_BASE_GELU_INPLACE_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class GeluInplace : public OperatorBase<GeluInplace> {
 public:
  static constexpr char kName[] = "gelu_inplace";

  // gelu_(Tensor(a!) self, *, str approximate='none') -> Tensor(a!)
  static void Call(const Tensor& input, std::string_view approximate, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "");
    Dispatch(overload, {input, approximate}, options);
  }

  static void Call(const Tensor& input, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "");
    Dispatch(overload, {input, std::string_view("none")}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_GELU_INPLACE_H_
