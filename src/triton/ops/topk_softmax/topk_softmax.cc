#include "base/topk_softmax.h"

#include <cstdint>
#include <optional>

#include "triton/launch.h"
#include "triton/operands.h"
#include "triton/topk_softmax.h"

namespace infini::ops {
namespace {

using Request = InfiniOpsTritonTopkSoftmaxRequest;

// Rows of more scores, or with more choices, do not fit into the kernels' blocks.
constexpr std::int64_t kMostExperts = 1024;
constexpr std::int64_t kMostChoices = 32;

bool FitsBlocks(const Invocation& call) {
  return triton::IsCountable(call) && call.tensor(0).shape()[1] <= kMostExperts &&
         call.tensor(3).shape()[1] <= kMostChoices;
}

void Describe(const Tensor& matrix, void** data, std::int64_t* row, std::int64_t* column) {
  *data = matrix.data();
  *row = matrix.strides()[0];
  *column = matrix.strides()[1];
}

}  // namespace

template <>
struct Operator<TopkSoftmax, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{kSmallFloatTypes, &FitsBlocks,
                                  "no dimension of more than 2^30 elements, at most 1024 experts, "
                                  "and a k of at most 32"};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& gating_output, bool renormalize,
                  const std::optional<Tensor>& bias, const Tensor& weights, const Tensor& indices,
                  const Tensor& numbers) {
    if (weights.element_count() == 0) return;
    Request request{};
    request.data_type = static_cast<int>(gating_output.data_type());
    request.tokens = weights.shape()[0];
    request.experts = gating_output.shape()[1];
    request.chosen = weights.shape()[1];
    request.renormalize = renormalize;
    request.indices_size = static_cast<std::int64_t>(DataTypeSize(indices.data_type()));
    request.numbers_size = static_cast<std::int64_t>(DataTypeSize(numbers.data_type()));
    Describe(gating_output, &request.gating_output, &request.gating_token, &request.gating_expert);
    Describe(weights, &request.weights, &request.weights_token, &request.weights_choice);
    Describe(indices, &request.indices, &request.indices_token, &request.indices_choice);
    Describe(numbers, &request.numbers, &request.numbers_token, &request.numbers_choice);
    if (bias) {
      request.has_bias = 1;
      request.bias = bias->data();
      request.bias_expert = bias->strides()[0];
    }
    triton::Launch("topk_softmax", &InfiniOpsTritonTopkSoftmax, request, invocation);
  }
};

INFINI_OPS_REGISTER(TopkSoftmax, Device::Type::kNvidia, 9);

}  // namespace infini::ops
