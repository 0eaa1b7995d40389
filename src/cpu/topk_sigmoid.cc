#include "base/topk_sigmoid.h"

#include "cpu/routing.h"

namespace infini::ops {

template <>
struct Operator<TopkSigmoid, Device::Type::kCpu, 0> {
  static void Run(const Tensor& gating_output, bool renormalize,
                  const std::optional<Tensor>& e_score_correction_bias, const Tensor& topk_weights,
                  const Tensor& topk_indices, const Tensor& token_expert_indices) {
    cpu::ChooseExperts({Scoring::kSigmoid, renormalize}, gating_output, e_score_correction_bias,
                       topk_weights, topk_indices);
    cpu::NumberChoices(token_expert_indices);
  }
};

INFINI_OPS_REGISTER(TopkSigmoid, Device::Type::kCpu, 0);

}  // namespace infini::ops
