#include "base/grouped_topk.h"
#include "cuda/routing.h"
#include "cuda/runtime.h"

namespace infini::ops {

template <>
struct Operator<GroupedTopk, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kSmallFloatTypes, &cuda::HasFewTokens, cuda::kRoutingLimit};

  static void Run(const Invocation& invocation, const Tensor& scores, std::int64_t num_expert_group,
                  std::int64_t topk_group, std::int64_t, bool renormalize,
                  double routed_scaling_factor, const Tensor& bias, std::int64_t scoring_func,
                  const Tensor& topk_values, const Tensor& topk_indices) {
    const auto scoring = scoring_func == 0 ? Scoring::kNone : Scoring::kSigmoid;
    cuda::ChooseExperts(invocation,
                        {scoring, renormalize, static_cast<float>(routed_scaling_factor),
                         num_expert_group, topk_group},
                        scores, bias, topk_values, topk_indices, std::nullopt);
  }
};

INFINI_OPS_REGISTER(GroupedTopk, cuda::kDevice, 0);

}  // namespace infini::ops
