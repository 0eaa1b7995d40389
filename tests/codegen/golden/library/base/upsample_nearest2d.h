// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_UPSAMPLE_NEAREST2D_H_
#define INFINI_OPS_BASE_UPSAMPLE_NEAREST2D_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class UpsampleNearest2d : public OperatorBase<UpsampleNearest2d> {
 public:
  static constexpr char kName[] = "upsample_nearest2d";

  // upsample_nearest2d.out(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& input, Span<std::int64_t> output_size, const std::optional<double>& scales_h, const std::optional<double>& scales_w, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, output_size, scales_h, scales_w, out}, options);
  }

  static void Call(const Tensor& input, Span<std::int64_t> output_size, const std::optional<double>& scales_h, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, output_size, scales_h, std::nullopt, out}, options);
  }

  static void Call(const Tensor& input, Span<std::int64_t> output_size, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, output_size, std::nullopt, std::nullopt, out}, options);
  }

  // upsample_nearest2d.vec_out(Tensor input, SymInt[]? output_size, float[]? scale_factors, *, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& input, const std::optional<Span<std::int64_t>>& output_size, const std::optional<Span<double>>& scale_factors, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "vec_out");
    Dispatch(overload, {input, output_size, scale_factors, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_UPSAMPLE_NEAREST2D_H_
