#ifndef INFINI_OPS_BASE_CAUSAL_SOFTMAX_H_
#define INFINI_OPS_BASE_CAUSAL_SOFTMAX_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// Softmax over the last dimension of [..., m, n], m <= n, where row i uses only the first n - m + i
// + 1 columns. The last row uses all: the newest of m queries sees all n keys. `out` is 0 in the
// other columns.
class CausalSoftmax : public OperatorBase<CausalSoftmax> {
 public:
  static constexpr char kName[] = "causal_softmax";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      kFloatTypes,
      Typing::kOne,
      Reading::kOnce,
      {{Condition::kCausalRows, "an input and an out of one shape [..., m, n], m <= n"}}};

  static void Call(const Tensor& input, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_CAUSAL_SOFTMAX_H_
