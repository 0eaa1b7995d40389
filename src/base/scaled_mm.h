#ifndef INFINI_OPS_BASE_SCALED_MM_H_
#define INFINI_OPS_BASE_SCALED_MM_H_

#include <optional>

#include "infini/ops/operator.h"

namespace infini::ops {

// out = a_scales * (b_scales * (a @ b)) + bias, as vLLM's cutlass_scaled_mm.
//
// `a` [m, k] and `b` [k, n] are int8 or float8_e4m3fn, in any layout. Products of int8 are summed
// exactly, modulo 2^32 as an int32, and those of float8_e4m3fn in float32. The rest is computed in
// float32, and rounded to the type of `out` [m, n], which `bias` [n] also has. `a_scales` has one
// element or one for each row, [m, 1] for instance, and `b_scales` one for each column. A row has
// the same bits in every batch.
class ScaledMm : public OperatorBase<ScaledMm> {
 public:
  static constexpr char kName[] = "scaled_mm";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "a"},
      {Parameter::Type::kTensor, "b"},
      {Parameter::Type::kTensor, "a_scales"},
      {Parameter::Type::kTensor, "b_scales"},
      Parameter(Parameter::Type::kTensor, "bias").Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      kSmallFloatTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kScaledProduct,
        "a [m, k] and b [k, n] of one type, a_scales of one element or m, b_scales of one or n, a "
        "bias [n] and an out [m, n]"}},
      0,
      0,
      {{Places(0, 1), kQuantizedTypes}, {Places(2, 3), kFloat32Type}}};

  static void Call(const Tensor& a, const Tensor& b, const Tensor& a_scales, const Tensor& b_scales,
                   const std::optional<Tensor>& bias, const Tensor& out,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {a, b, a_scales, b_scales, bias, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_SCALED_MM_H_
