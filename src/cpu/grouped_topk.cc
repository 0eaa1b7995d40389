#include "base/grouped_topk.h"

#include "cpu/routing.h"

namespace infini::ops {

template <>
struct Operator<GroupedTopk, Device::Type::kCpu, 0> {
  static void Run(const Tensor& scores, std::int64_t num_expert_group, std::int64_t topk_group,
                  std::int64_t, bool renormalize, double routed_scaling_factor, const Tensor& bias,
                  std::int64_t scoring_func, const Tensor& topk_values,
                  const Tensor& topk_indices) {
    Routing routing{scoring_func == 0 ? Scoring::kNone : Scoring::kSigmoid, renormalize};
    routing.factor = static_cast<float>(routed_scaling_factor);
    routing.groups = num_expert_group;
    routing.kept_groups = topk_group;
    cpu::ChooseExperts(routing, scores, bias, topk_values, topk_indices);
  }
};

INFINI_OPS_REGISTER(GroupedTopk, Device::Type::kCpu, 0);

}  // namespace infini::ops
