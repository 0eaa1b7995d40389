#ifndef INFINI_OPS_BASE_CAST_H_
#define INFINI_OPS_BASE_CAST_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// out = input, converted to the element type of `out` and broadcast to its shape. What the type can
// hold is converted as by Tensor.copy_: floats are truncated when they are converted to integers.
//
// The rest has one rule on every processor, for integers of n bits: integers, and floats from -2^63
// to below 2^63 (2^64 for uint64) after truncation, wrap around modulo 2^n. Other floats, infinity
// and NaN become -2^63 modulo 2^n, which is 0 if n is at most 32.
class Cast : public OperatorBase<Cast> {
 public:
  static constexpr char kName[] = "cast";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      kStoredTypes,
      Typing::kAny,
      Reading::kOnce,
      {{Condition::kBroadcast, "an out of a shape that the input broadcasts to"}}};

  static void Call(const Tensor& input, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {input, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_CAST_H_
