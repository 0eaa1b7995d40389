#ifndef INFINI_OPS_BASE_GROUPED_GEMM_H_
#define INFINI_OPS_BASE_GROUPED_GEMM_H_

#include <cstdint>
#include <optional>

#include "infini/ops/operator.h"

namespace infini::ops {

// The products of a mixture of experts: row i of `out` is row i / top_k of `a`, times the matrix of
// the expert that choice i has, times its weight.
//
// `a` is [rows, k], `b` [experts, n, k] as the weights of torch's linear layers, and `out`
// [rows * top_k, n]. The experts are those of `sorted_token_ids`, `experts_ids` and
// `num_tokens_post_pad`, as moe_align_block_size writes them for this `block_size`.
//
// This is the form of vLLM's and SGLang's fused experts. torch._grouped_mm takes rows that are
// already sorted by expert, with the end of each expert. There a caller has to copy the rows to
// their places before the first product, and back after the second one. Here the first product has
// the top_k of the layer, the second one a top_k of 1, and moe_sum adds the results.
//
// `topk_weights`, float32, has a weight for each choice, in row-major order. Rows of no block are
// 0. On the CPU an index out of range is an error, before anything is written. The bits of a
// product are those of gemm, which depend on how many rows an expert has unless the environment has
// INFINI_OPS_BATCH_INVARIANT=1.
class GroupedGemm : public OperatorBase<GroupedGemm> {
 public:
  static constexpr char kName[] = "grouped_gemm";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "a"},
      {Parameter::Type::kTensor, "b"},
      {Parameter::Type::kTensor, "sorted_token_ids"},
      {Parameter::Type::kTensor, "experts_ids"},
      {Parameter::Type::kTensor, "num_tokens_post_pad"},
      {Parameter::Type::kInt, "block_size"},
      Parameter(Parameter::Type::kInt, "top_k").Default(1),
      Parameter(Parameter::Type::kTensor, "topk_weights").Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kTensor, "out").Out(),
  };
  static constexpr Requirements kRequirements = {
      {kSmallFloatTypes.bits, "type (float16, bfloat16 or float32), and topk_weights of float32",
       Places(7)},
      Typing::kOne,
      Reading::kOften,
      {{Condition::kGroupedGemm,
        "an a [rows, k], a b [experts, n, k], a block_size and a top_k of at least 1, an out [rows "
        "* top_k, n], one-dimensional sorted_token_ids and experts_ids, num_tokens_post_pad [1], "
        "and contiguous topk_weights, one for each row of out"}},
      Places(2, 3, 4)};

  static void Call(const Tensor& a, const Tensor& b, const Tensor& sorted_token_ids,
                   const Tensor& experts_ids, const Tensor& num_tokens_post_pad,
                   std::int64_t block_size, std::int64_t top_k,
                   const std::optional<Tensor>& topk_weights, const Tensor& out,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload,
             {a, b, sorted_token_ids, experts_ids, num_tokens_post_pad, block_size, top_k,
              topk_weights, out},
             options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_GROUPED_GEMM_H_
