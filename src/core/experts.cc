#include "core/experts.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "infini/ops/operator.h"

namespace infini::ops {
namespace {

// Limits the memory that a mistaken number could take.
constexpr std::int64_t kMostExperts = 65536;

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

bool IsGroupedTopk(const Invocation& call) {
  const Tensor& scores = call.tensor(0);
  const auto groups = call.arguments[1].scalar.To<std::int64_t>();
  const auto kept = call.arguments[2].scalar.To<std::int64_t>();
  const auto chosen = call.arguments[3].scalar.To<std::int64_t>();
  const auto scoring = call.arguments[7].scalar.To<std::int64_t>();
  if (scores.dimensions() != 2) return false;
  const std::int64_t tokens = scores.shape()[0];
  const std::int64_t experts = scores.shape()[1];
  return groups >= 1 && experts % groups == 0 && kept >= 1 && kept <= groups && chosen >= 0 &&
         chosen <= kept * (experts / groups) && (scoring == 0 || scoring == 1) &&
         IsShaped(call.tensor(6), {experts}) && call.tensor(8).data_type() == DataType::kFloat32 &&
         IsShaped(call.tensor(8), {tokens, chosen}) && IsShaped(call.tensor(9), {tokens, chosen});
}

bool IsBlockAlignment(const Invocation& call) {
  const Tensor& ids = call.tensor(0);
  const auto experts = call.arguments[1].scalar.To<std::int64_t>();
  const auto block_size = call.arguments[2].scalar.To<std::int64_t>();
  const Tensor& sorted = call.tensor(3);
  const Tensor& blocks = call.tensor(4);
  const std::int64_t count = ids.element_count();
  constexpr std::int64_t most = std::int64_t{1} << 31;
  if ((ids.dimensions() != 1 && ids.dimensions() != 2) || sorted.dimensions() != 1 ||
      blocks.dimensions() != 1 || !IsShaped(call.tensor(5), {1}) || count >= most || experts < 1 ||
      experts > kMostExperts || block_size < 1 || block_size >= most) {
    return false;
  }
  const std::int64_t room = std::min(count * block_size, count + experts * (block_size - 1));
  return room < most && sorted.shape()[0] >= room - room % block_size &&
         blocks.shape()[0] >= room / block_size;
}

bool IsExpertSum(const Invocation& call) {
  const Tensor& input = call.tensor(0);
  return input.dimensions() == 3 && IsShaped(call.out(), {input.shape()[0], input.shape()[2]});
}

bool IsGroupedGemm(const Invocation& call) {
  const Tensor& a = call.tensor(0);
  const Tensor& b = call.tensor(1);
  const auto block_size = call.arguments[5].scalar.To<std::int64_t>();
  const auto top_k = call.arguments[6].scalar.To<std::int64_t>();
  const Tensor& out = call.out();
  if (a.dimensions() != 2 || b.dimensions() != 3 || out.dimensions() != 2 ||
      call.tensor(2).dimensions() != 1 || call.tensor(3).dimensions() != 1 ||
      !IsShaped(call.tensor(4), {1}) || block_size < 1 || top_k < 1) {
    return false;
  }
  const std::int64_t rows = out.shape()[0];
  if (rows % top_k != 0 || rows / top_k != a.shape()[0] || b.shape()[2] != a.shape()[1] ||
      b.shape()[1] != out.shape()[1]) {
    return false;
  }
  if (call.arguments[7].tag == Argument::Tag::kNone) return true;
  const Tensor& weights = call.tensor(7);
  return weights.data_type() == DataType::kFloat32 && weights.is_contiguous() &&
         weights.element_count() == rows;
}

}  // namespace infini::ops
