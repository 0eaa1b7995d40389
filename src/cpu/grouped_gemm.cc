#include "base/grouped_gemm.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/indices.h"
#include "cpu/convert.h"
#include "cpu/parallel.h"
#include "cpu/product.h"

namespace infini::ops {
namespace cpu {
namespace {

// Consecutive blocks of one expert.
struct ExpertRows {
  std::int64_t expert;
  std::vector<std::int64_t> choices;  // rows of `out`
};

[[noreturn]] void RefuseElement(const char* name, std::int64_t i, std::int64_t got,
                                const std::string& expected) {
  throw std::invalid_argument("grouped_gemm: " + std::string(name) + '[' + std::to_string(i) +
                              "]: got " + std::to_string(got) + ", expected " + expected +
                              "; pass what moe_align_block_size wrote for this block_size");
}

// Reads and checks the blocks. Sets `is_chosen` for each row of `out` that one of them has.
std::vector<ExpertRows> ReadBlocks(const Tensor& sorted_token_ids, const Tensor& experts_ids,
                                   std::int64_t end, std::int64_t block_size, std::int64_t experts,
                                   std::vector<bool>* is_chosen) {
  const std::int64_t blocks =
      std::min(sorted_token_ids.shape()[0] / block_size, experts_ids.shape()[0]);
  if (end < 0 || end % block_size != 0 || end / block_size > blocks) {
    RefuseElement("num_tokens_post_pad", 0, end,
                  "at most " + std::to_string(blocks) + " blocks of " + std::to_string(block_size) +
                      " elements");
  }
  const Indices sorted(sorted_token_ids);
  const Indices expert_of(experts_ids);
  std::vector<ExpertRows> groups;
  for (std::int64_t i = 0; i < end; ++i) {
    const std::int64_t expert = expert_of(i / block_size);
    if (expert < 0 || expert >= experts) {
      RefuseElement("experts_ids", i / block_size, expert, "0 to " + std::to_string(experts - 1));
    }
    if (groups.empty() || groups.back().expert != expert) groups.push_back({expert, {}});
    const std::int64_t choice = sorted(i);
    if (choice < 0) RefuseElement("sorted_token_ids", i, choice, "at least 0");
    if (choice >= static_cast<std::int64_t>(is_chosen->size())) continue;
    if ((*is_chosen)[static_cast<std::size_t>(choice)]) {
      RefuseElement("sorted_token_ids", i, choice, "each choice once");
    }
    (*is_chosen)[static_cast<std::size_t>(choice)] = true;
    groups.back().choices.push_back(choice);
  }
  return groups;
}

Tensor RowOf(const Tensor& matrix, std::int64_t row) {
  const auto size = static_cast<std::int64_t>(DataTypeSize(matrix.data_type()));
  return {matrix.data<char>() + row * matrix.strides()[0] * size,
          {matrix.shape().data() + 1, 1},
          {matrix.strides().data() + 1, 1},
          matrix.data_type()};
}

// `columns` contiguous elements per row.
Matrix Dense(char* data, std::int64_t rows, std::int64_t columns) {
  return {data, rows, columns, rows == 1 ? 0 : columns, columns == 1 ? 0 : 1};
}

class ExpertProducts {
 public:
  ExpertProducts(const Tensor& a, const Tensor& b, std::int64_t top_k, const float* weights,
                 const Tensor& out)
      : a_(a), b_(b), top_k_(top_k), weights_(weights), out_(out) {}

  // `room` is memory for the rows of the factor and of the results.
  void Run(const ExpertRows& group, char* room) const {
    const auto rows = static_cast<std::int64_t>(group.choices.size());
    const std::int64_t steps = a_.shape()[1];
    const std::int64_t columns = out_.shape()[1];
    const auto size = static_cast<std::int64_t>(DataTypeSize(out_.data_type()));
    const std::int64_t* const strides = b_.strides().data();
    Product product;
    product.type = out_.data_type();
    product.a = Dense(room, rows, steps);
    product.b = {b_.data<char>() + group.expert * strides[0] * size, steps, columns,
                 steps == 1 ? 0 : strides[2], columns == 1 ? 0 : strides[1]};
    product.out = Dense(room + rows * steps * size, rows, columns);
    const Tensor factor = TensorOf(product.a);
    const Tensor results = TensorOf(product.out);
    ForEachChoice(group, steps, [&](std::int64_t i, std::int64_t choice) {
      Convert(RowOf(a_, choice / top_k_), RowOf(factor, i));
    });
    Multiply(product);
    ForEachChoice(group, columns, [&](std::int64_t i, std::int64_t choice) {
      if (weights_) {
        WriteWeighted(RowOf(results, i), weights_[choice], RowOf(out_, choice));
      } else {
        Convert(RowOf(results, i), RowOf(out_, choice));
      }
    });
  }

 private:
  Tensor TensorOf(const Matrix& dense) const {
    return {dense.data, {{dense.rows, dense.columns}}, out_.data_type()};
  }

  template <typename Function>
  static void ForEachChoice(const ExpertRows& group, std::int64_t elements,
                            const Function& function) {
    const auto rows = static_cast<std::int64_t>(group.choices.size());
    ParallelFor(rows, kElementsPerThread / (elements + 1),
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t i = begin; i < end; ++i) {
                    function(i, group.choices[static_cast<std::size_t>(i)]);
                  }
                });
  }

  // In float32, rounded once.
  static void WriteWeighted(const Tensor& from, float weight, const Tensor& to) {
    const std::int64_t count = to.shape()[0];
    const std::unique_ptr<float[]> wide(new float[count]);
    const Tensor products(wide.get(), to.shape(), DataType::kFloat32);
    Convert(from, products);
    for (std::int64_t i = 0; i < count; ++i) wide[i] *= weight;
    Convert(products, to);
  }

  const Tensor& a_;
  const Tensor& b_;
  std::int64_t top_k_;
  const float* weights_;  // null: none
  const Tensor& out_;
};

// Rows of no block.
void WriteZeros(const std::vector<bool>& is_chosen, const Tensor& out) {
  float zero = 0;
  const std::int64_t repeated = 0;
  const Tensor zeros(&zero, {out.shape().data() + 1, 1}, {&repeated, 1}, out.data_type());
  for (std::size_t row = 0; row < is_chosen.size(); ++row) {
    if (!is_chosen[row]) Convert(zeros, RowOf(out, static_cast<std::int64_t>(row)));
  }
}

}  // namespace
}  // namespace cpu

template <>
struct Operator<GroupedGemm, Device::Type::kCpu, 0> {
  static void Run(const Tensor& a, const Tensor& b, const Tensor& sorted_token_ids,
                  const Tensor& experts_ids, const Tensor& num_tokens_post_pad,
                  std::int64_t block_size, std::int64_t top_k,
                  const std::optional<Tensor>& topk_weights, const Tensor& out) {
    std::vector<bool> is_chosen(static_cast<std::size_t>(out.shape()[0]));
    const std::vector<cpu::ExpertRows> groups =
        cpu::ReadBlocks(sorted_token_ids, experts_ids, Indices(num_tokens_post_pad)(0), block_size,
                        b.shape()[0], &is_chosen);
    if (out.element_count() == 0) return;
    std::size_t most = 0;
    for (const cpu::ExpertRows& group : groups) most = std::max(most, group.choices.size());
    const std::size_t row_bytes =
        static_cast<std::size_t>(a.shape()[1] + out.shape()[1]) * DataTypeSize(out.data_type());
    const std::unique_ptr<char[]> room(new char[most * row_bytes]);
    const cpu::ExpertProducts products(a, b, top_k,
                                       topk_weights ? topk_weights->data<float>() : nullptr, out);
    for (const cpu::ExpertRows& group : groups) {
      if (!group.choices.empty()) products.Run(group, room.get());
    }
    cpu::WriteZeros(is_chosen, out);
  }
};

INFINI_OPS_REGISTER(GroupedGemm, Device::Type::kCpu, 0);

}  // namespace infini::ops
