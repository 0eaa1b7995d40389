// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_CLONE_H_
#define INFINI_OPS_BASE_CLONE_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class Clone : public OperatorBase<Clone> {
 public:
  static constexpr char kName[] = "clone";

  // clone.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& input, const std::optional<MemoryFormat>& memory_format, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, memory_format, out}, options);
  }

  static void Call(const Tensor& input, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, std::nullopt, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_CLONE_H_
