#ifndef INFINI_OPS_CPU_ROUTING_H_
#define INFINI_OPS_CPU_ROUTING_H_

#include <optional>

#include "core/experts.h"
#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

void ChooseExperts(const Routing& routing, const Tensor& scores, const std::optional<Tensor>& bias,
                   const Tensor& weights, const Tensor& experts);

// The third result of topk_softmax and topk_sigmoid.
void NumberChoices(const Tensor& token_expert_indices);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ROUTING_H_
