#ifndef INFINI_OPS_CUDA_ROUTING_H_
#define INFINI_OPS_CUDA_ROUTING_H_

#include <cstdint>
#include <optional>

#include "infini/ops/operator.h"

namespace infini::ops::cuda {

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

// `numbers` is the third result of topk_softmax and topk_sigmoid.
void ChooseExperts(const Invocation& invocation, const Routing& routing, const Tensor& scores,
                   const std::optional<Tensor>& bias, const Tensor& weights, const Tensor& experts,
                   const std::optional<Tensor>& numbers);

// The limit of all.
bool HasFewTokens(const Invocation& call);
inline constexpr char kRoutingLimit[] =
    "fewer than 2^31 tokens and experts, in at most 1024 groups";

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_ROUTING_H_
