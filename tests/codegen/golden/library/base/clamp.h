// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_CLAMP_H_
#define INFINI_OPS_BASE_CLAMP_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class Clamp : public OperatorBase<Clamp> {
 public:
  static constexpr char kName[] = "clamp";

  // clamp.out(Tensor self, Scalar? min=None, Scalar? max=None, *, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& input, const std::optional<Scalar>& min, const std::optional<Scalar>& max, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, min, max, out}, options);
  }

  static void Call(const Tensor& input, const std::optional<Scalar>& min, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, min, std::nullopt, out}, options);
  }

  static void Call(const Tensor& input, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, std::nullopt, std::nullopt, out}, options);
  }

  // clamp.Tensor_out(Tensor self, Tensor? min=None, Tensor? max=None, *, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& input, const std::optional<Tensor>& min, const std::optional<Tensor>& max, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "Tensor_out");
    Dispatch(overload, {input, min, max, out}, options);
  }

  static void Call(const Tensor& input, const std::optional<Tensor>& min, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "Tensor_out");
    Dispatch(overload, {input, min, std::nullopt, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_CLAMP_H_
