#include "base/moe_align_block_size.h"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/indices.h"

namespace infini::ops {
namespace {

// The expert of each choice.
std::vector<std::int64_t> ExpertsOf(const Tensor& topk_ids, std::int64_t num_experts) {
  const bool has_rows = topk_ids.dimensions() == 2;
  const std::int64_t rows = has_rows ? topk_ids.shape()[0] : 1;
  const std::int64_t columns = topk_ids.shape()[has_rows ? 1 : 0];
  std::vector<std::int64_t> experts;
  experts.reserve(static_cast<std::size_t>(rows * columns));
  const Indices ids(topk_ids);
  for (std::int64_t i = 0; i < rows; ++i) {
    const Indices row = ids.Row(i);
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t expert = row(j);
      experts.push_back(expert);
      if (expert < num_experts) continue;
      throw std::invalid_argument(
          "moe_align_block_size: topk_ids[" + (has_rows ? std::to_string(i) + ", " : "") +
          std::to_string(j) + "]: got expert " + std::to_string(expert) + ", expected one below " +
          std::to_string(num_experts) + ": pass the number of all experts as num_experts; a " +
          "negative expert skips its choice");
    }
  }
  return experts;
}

}  // namespace

template <>
struct Operator<MoeAlignBlockSize, Device::Type::kCpu, 0> {
  static void Run(const Tensor& topk_ids, std::int64_t num_experts, std::int64_t block_size,
                  const Tensor& sorted_token_ids, const Tensor& experts_ids,
                  const Tensor& num_tokens_post_pad) {
    const std::vector<std::int64_t> experts = ExpertsOf(topk_ids, num_experts);
    std::vector<std::int64_t> places(static_cast<std::size_t>(num_experts));
    for (const std::int64_t expert : experts) {
      if (expert >= 0) ++places[static_cast<std::size_t>(expert)];
    }
    const Indices blocks(experts_ids);
    std::int64_t end = 0;
    for (std::int64_t expert = 0; expert < num_experts; ++expert) {
      std::int64_t& place = places[static_cast<std::size_t>(expert)];
      const std::int64_t begin = end;
      for (; end - begin < place; end += block_size) blocks.Write(end / block_size, expert);
      place = begin;  // of the expert's next choice
    }
    for (std::int64_t i = end / block_size; i < experts_ids.shape()[0]; ++i) blocks.Write(i, 0);
    const Indices sorted(sorted_token_ids);
    const auto count = static_cast<std::int64_t>(experts.size());
    for (std::int64_t i = 0; i < sorted_token_ids.shape()[0]; ++i) sorted.Write(i, count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t expert = experts[static_cast<std::size_t>(i)];
      if (expert >= 0) sorted.Write(places[static_cast<std::size_t>(expert)]++, i);
    }
    Indices(num_tokens_post_pad).Write(0, end);
  }
};

INFINI_OPS_REGISTER(MoeAlignBlockSize, Device::Type::kCpu, 0);

}  // namespace infini::ops
