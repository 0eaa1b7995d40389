#include "core/experts.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "infini/ops/operator.h"

namespace infini::ops {
namespace {

bool IsShaped(const Tensor& tensor, std::initializer_list<std::int64_t> shape) {
  return std::equal(tensor.shape().begin(), tensor.shape().end(), shape.begin(), shape.end());
}

}  // namespace

bool IsTopkGating(const Invocation& call) {
  const Tensor& gating = call.tensor(0);
  const Tensor& weights = call.tensor(3);
  if (gating.dimensions() != 2 || weights.dimensions() != 2) return false;
  const std::int64_t tokens = gating.shape()[0];
  const std::int64_t experts = gating.shape()[1];
  const std::int64_t chosen = weights.shape()[1];
  if (weights.data_type() != DataType::kFloat32 || chosen > experts) return false;
  if (call.arguments[2].tag != Argument::Tag::kNone &&
      (call.tensor(2).data_type() != DataType::kFloat32 || !IsShaped(call.tensor(2), {experts}))) {
    return false;
  }
  return IsShaped(weights, {tokens, chosen}) && IsShaped(call.tensor(4), {tokens, chosen}) &&
         IsShaped(call.tensor(5), {tokens, chosen});
}

}  // namespace infini::ops
