// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_MEAN_H_
#define INFINI_OPS_BASE_MEAN_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class Mean : public OperatorBase<Mean> {
 public:
  static constexpr char kName[] = "mean";

  // mean.dtype_out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& input, const std::optional<DataType>& dtype, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "dtype_out");
    Dispatch(overload, {input, dtype, out}, options);
  }

  static void Call(const Tensor& input, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "dtype_out");
    Dispatch(overload, {input, std::nullopt, out}, options);
  }

  // mean.out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& input, const std::optional<Span<std::int64_t>>& dim, bool keepdim, const std::optional<DataType>& dtype, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, dim, keepdim, dtype, out}, options);
  }

  static void Call(const Tensor& input, const std::optional<Span<std::int64_t>>& dim, bool keepdim, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, dim, keepdim, std::nullopt, out}, options);
  }

  static void Call(const Tensor& input, const std::optional<Span<std::int64_t>>& dim, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, dim, false, std::nullopt, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_MEAN_H_
