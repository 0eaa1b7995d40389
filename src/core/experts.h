#ifndef INFINI_OPS_CORE_EXPERTS_H_
#define INFINI_OPS_CORE_EXPERTS_H_

// The shapes of mixtures of experts, for every device.
namespace infini::ops {

struct Invocation;

// True if the shapes of a call of topk_softmax or topk_sigmoid match.
bool IsTopkGating(const Invocation& call);

// True if the shapes and numbers of a call of grouped_topk match.
bool IsGroupedTopk(const Invocation& call);

// True if the sizes of a call of moe_align_block_size match.
bool IsBlockAlignment(const Invocation& call);

// True if the shapes of a call of moe_sum match.
bool IsExpertSum(const Invocation& call);

// True if the shapes of a call of grouped_gemm match.
bool IsGroupedGemm(const Invocation& call);

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_EXPERTS_H_
