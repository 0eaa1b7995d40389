// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_FFT_FFT2_H_
#define INFINI_OPS_BASE_FFT_FFT2_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class FftFft2 : public OperatorBase<FftFft2> {
 public:
  static constexpr char kName[] = "fft_fft2";

  // fft_fft2.out(Tensor self, SymInt[1]? s=None, int[1] dim=[-2,-1], str? norm=None, *, Tensor(a!) out) -> Tensor(a!)
  static void Call(const Tensor& input, const std::optional<Span<std::int64_t>>& s, Span<std::int64_t> dim, const std::optional<std::string_view>& norm, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, s, dim, norm, out}, options);
  }

  static void Call(const Tensor& input, const std::optional<Span<std::int64_t>>& s, Span<std::int64_t> dim, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, s, dim, std::nullopt, out}, options);
  }

  static void Call(const Tensor& input, const std::optional<Span<std::int64_t>>& s, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, s, Integers<-2, -1>(), std::nullopt, out}, options);
  }

  static void Call(const Tensor& input, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {input, std::nullopt, Integers<-2, -1>(), std::nullopt, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_FFT_FFT2_H_
