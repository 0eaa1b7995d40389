// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_NORMAL_H_
#define INFINI_OPS_BASE_NORMAL_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class Normal : public OperatorBase<Normal> {
 public:
  static constexpr char kName[] = "normal";

  // normal.Tensor_float_out(Tensor mean, float std=1, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& mean, double std, std::nullopt_t generator, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "Tensor_float_out");
    Dispatch(overload, {mean, std, generator, out}, options);
  }

  static void Call(const Tensor& mean, double std, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "Tensor_float_out");
    Dispatch(overload, {mean, std, std::nullopt, out}, options);
  }

  static void Call(const Tensor& mean, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "Tensor_float_out");
    Dispatch(overload, {mean, 1.0, std::nullopt, out}, options);
  }

  // normal.float_Tensor_out(float mean, Tensor std, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)
  static void Call(double mean, const Tensor& std, std::nullopt_t generator, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "float_Tensor_out");
    Dispatch(overload, {mean, std, generator, out}, options);
  }

  static void Call(double mean, const Tensor& std, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "float_Tensor_out");
    Dispatch(overload, {mean, std, std::nullopt, out}, options);
  }

  // normal.Tensor_Tensor_out(Tensor mean, Tensor std, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& mean, const Tensor& std, std::nullopt_t generator, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "Tensor_Tensor_out");
    Dispatch(overload, {mean, std, generator, out}, options);
  }

  static void Call(const Tensor& mean, const Tensor& std, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "Tensor_Tensor_out");
    Dispatch(overload, {mean, std, std::nullopt, out}, options);
  }

  // normal.float_float_out(float mean, float std, SymInt[] size, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)
  static void Call(double mean, double std, Span<std::int64_t> size, std::nullopt_t generator, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "float_float_out");
    Dispatch(overload, {mean, std, size, generator, out}, options);
  }

  static void Call(double mean, double std, Span<std::int64_t> size, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "float_float_out");
    Dispatch(overload, {mean, std, size, std::nullopt, out}, options);
  }

  // normal.out(Tensor self, float mean=0, float std=1, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& input, double mean, double std, std::nullopt_t generator, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, mean, std, generator, out}, options);
  }

  static void Call(const Tensor& input, double mean, double std, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, mean, std, std::nullopt, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_NORMAL_H_
