// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_RANDOM_INPLACE_H_
#define INFINI_OPS_BASE_RANDOM_INPLACE_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class RandomInplace : public OperatorBase<RandomInplace> {
 public:
  static constexpr char kName[] = "random_inplace";

  // random_.from(Tensor(a!) self, int from, int? to, *, Generator? generator=None) -> Tensor(a!)
  static void Call(const Tensor& input, std::int64_t from_, const std::optional<std::int64_t>& to, std::nullopt_t generator, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "from");
    Dispatch(overload, {input, from_, to, generator}, options);
  }

  static void Call(const Tensor& input, std::int64_t from_, const std::optional<std::int64_t>& to, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "from");
    Dispatch(overload, {input, from_, to, std::nullopt}, options);
  }

  // random_.to(Tensor(a!) self, int to, *, Generator? generator=None) -> Tensor(a!)
  static void Call(const Tensor& input, std::int64_t to, std::nullopt_t generator, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "to");
    Dispatch(overload, {input, to, generator}, options);
  }

  static void Call(const Tensor& input, std::int64_t to, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "to");
    Dispatch(overload, {input, to, std::nullopt}, options);
  }

  // random_(Tensor(a!) self, *, Generator? generator=None) -> Tensor(a!)
  static void Call(const Tensor& input, std::nullopt_t generator, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "");
    Dispatch(overload, {input, generator}, options);
  }

  static void Call(const Tensor& input, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "");
    Dispatch(overload, {input, std::nullopt}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_RANDOM_INPLACE_H_
