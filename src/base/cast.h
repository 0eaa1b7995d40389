#ifndef INFINI_OPS_BASE_CAST_H_
#define INFINI_OPS_BASE_CAST_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// out = input, converted to the element type of `out` and broadcast to its shape. As in
// Tensor.copy_, floats are truncated when they are converted to integers, and integers wrap around.
// Floats wrap around, too, if they are truncated to an integer of 64 bits; others, and NaN, become
// -2^63 modulo 2^n.
class Cast : public OperatorBase<Cast> {
 public:
  static constexpr char kName[] = "cast";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };

  static void Call(const Tensor& input, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_CAST_H_
