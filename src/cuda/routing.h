#ifndef INFINI_OPS_CUDA_ROUTING_H_
#define INFINI_OPS_CUDA_ROUTING_H_

#include <optional>

#include "core/experts.h"
#include "infini/ops/operator.h"

namespace infini::ops::cuda {

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
