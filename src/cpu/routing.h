#ifndef INFINI_OPS_CPU_ROUTING_H_
#define INFINI_OPS_CPU_ROUTING_H_

#include <cstdint>
#include <optional>

#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

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

void ChooseExperts(const Routing& routing, const Tensor& scores, const std::optional<Tensor>& bias,
                   const Tensor& weights, const Tensor& experts);

// The third result of topk_softmax and topk_sigmoid.
void NumberChoices(const Tensor& token_expert_indices);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ROUTING_H_
