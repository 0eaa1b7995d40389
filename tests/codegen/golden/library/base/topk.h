// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_TOPK_H_
#define INFINI_OPS_BASE_TOPK_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class Topk : public OperatorBase<Topk> {
 public:
  static constexpr char kName[] = "topk";

  // topk.values(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)
  static void Call(const Tensor& input, std::int64_t k, std::int64_t dim, bool largest, bool sorted, const Tensor& values, const Tensor& indices, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "values");
    Dispatch(overload, {input, k, dim, largest, sorted, values, indices}, options);
  }

  static void Call(const Tensor& input, std::int64_t k, std::int64_t dim, bool largest, const Tensor& values, const Tensor& indices, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "values");
    Dispatch(overload, {input, k, dim, largest, true, values, indices}, options);
  }

  static void Call(const Tensor& input, std::int64_t k, std::int64_t dim, const Tensor& values, const Tensor& indices, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "values");
    Dispatch(overload, {input, k, dim, true, true, values, indices}, options);
  }

  static void Call(const Tensor& input, std::int64_t k, const Tensor& values, const Tensor& indices, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "values");
    Dispatch(overload, {input, k, -1, true, true, values, indices}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_TOPK_H_
