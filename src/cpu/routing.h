#ifndef INFINI_OPS_CPU_ROUTING_H_
#define INFINI_OPS_CPU_ROUTING_H_

#include <optional>

#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// How the scores of a token become weights of experts.
enum class Scoring { kSoftmax, kSigmoid };

// As base/topk_softmax.h and base/topk_sigmoid.h.
void ChooseExperts(Scoring scoring, const Tensor& scores, bool renormalize,
                   const std::optional<Tensor>& bias, const Tensor& weights, const Tensor& experts,
                   const Tensor& token_expert_indices);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ROUTING_H_
