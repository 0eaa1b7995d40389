#ifndef INFINI_OPS_CORE_EXPERTS_H_
#define INFINI_OPS_CORE_EXPERTS_H_

#include <cstdint>

// Mixtures of experts, for every device.
namespace infini::ops {

struct Invocation;

// How the scores of a token become weights of experts.
enum class Scoring { kNone, kSoftmax, kSigmoid };

// As base/topk_softmax.h, base/topk_sigmoid.h and base/grouped_topk.h.
struct Routing {
  Scoring scoring;
  bool renormalize;
  float factor = 1;  // of the weights
  std::int64_t groups = 1;
  std::int64_t kept_groups = 1;
};

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
