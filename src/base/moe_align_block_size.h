#ifndef INFINI_OPS_BASE_MOE_ALIGN_BLOCK_SIZE_H_
#define INFINI_OPS_BASE_MOE_ALIGN_BLOCK_SIZE_H_

#include <cstdint>

#include "infini/ops/operator.h"

namespace infini::ops {

// Sorts choices by expert into whole blocks, as moe_align_block_size of vLLM.
//
// `topk_ids` has the expert of each choice; choice i is the i-th element in row-major order. Each
// expert gets as many blocks of `block_size` as its choices need, in the order of the experts.
// `sorted_token_ids` gets the numbers of the choices, ascending within an expert, and the number of
// all choices where a block has none and after the last block. `experts_ids` gets the expert of
// each block, and 0 after the last one. `num_tokens_post_pad` [1] gets the number of elements in
// blocks.
//
// A choice with a negative expert is in no block. On the CPU an expert of num_experts or more is an
// error, before anything is written; on other devices its choice is in no block, too.
class MoeAlignBlockSize : public OperatorBase<MoeAlignBlockSize> {
 public:
  static constexpr char kName[] = "moe_align_block_size";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "topk_ids"},
      {Parameter::Type::kInt, "num_experts"},
      {Parameter::Type::kInt, "block_size"},
      Parameter(Parameter::Type::kTensor, "sorted_token_ids").Out(),
      Parameter(Parameter::Type::kTensor, "experts_ids").Out(),
      Parameter(Parameter::Type::kTensor, "num_tokens_post_pad").Out(),
  };
  static constexpr Requirements kRequirements = {
      kIndexTypes,
      Typing::kAny,
      Reading::kOften,
      {{Condition::kBlockAlignment,
        "n topk_ids in one or two dimensions, num_experts of 1 to 65536 and a block_size of at "
        "least 1, a one-dimensional sorted_token_ids with room for the whole blocks in the lesser "
        "of n * block_size and n + num_experts * (block_size - 1), which is below 2^31, a "
        "one-dimensional experts_ids with room for as many blocks, and num_tokens_post_pad [1]"}}};

  static void Call(const Tensor& topk_ids, std::int64_t num_experts, std::int64_t block_size,
                   const Tensor& sorted_token_ids, const Tensor& experts_ids,
                   const Tensor& num_tokens_post_pad, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(
        overload,
        {topk_ids, num_experts, block_size, sorted_token_ids, experts_ids, num_tokens_post_pad},
        options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_MOE_ALIGN_BLOCK_SIZE_H_
