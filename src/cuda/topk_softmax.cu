#include "base/topk_softmax.h"
#include "cuda/routing.h"
#include "cuda/runtime.h"

namespace infini::ops {

template <>
struct Operator<TopkSoftmax, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kSmallFloatTypes, &cuda::HasFewTokens, cuda::kRoutingLimit};

  static void Run(const Invocation& invocation, const Tensor& gating_output, bool renormalize,
                  const std::optional<Tensor>& e_score_correction_bias, const Tensor& topk_weights,
                  const Tensor& topk_indices, const Tensor& token_expert_indices) {
    cuda::ChooseExperts(invocation, {Scoring::kSoftmax, renormalize}, gating_output,
                        e_score_correction_bias, topk_weights, topk_indices, token_expert_indices);
  }
};

INFINI_OPS_REGISTER(TopkSoftmax, cuda::kDevice, 0);

}  // namespace infini::ops
