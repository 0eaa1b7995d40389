#include "base/top_k_top_p_sampling_from_logits.h"

#include <cstdint>
#include <optional>

#include "triton/launch.h"
#include "triton/operands.h"
#include "triton/top_k_top_p_sampling_from_logits.h"

namespace infini::ops {
namespace {

// Writes where a vector is. Without one, its size is 0.
void Place(const std::optional<Tensor>& vector, void** data, std::int64_t* size,
           std::int64_t* stride) {
  if (!vector) return;
  *data = vector->data();
  *size = static_cast<std::int64_t>(DataTypeSize(vector->data_type()));
  *stride = vector->strides()[0];
}

}  // namespace

template <>
struct Operator<TopKTopPSamplingFromLogits, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{TopKTopPSamplingFromLogits::kRequirements.types,
                                  &triton::IsCountable, triton::kCountableLimit};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& logits, std::int64_t top_k,
                  double top_p, std::int64_t seed, std::int64_t offset, bool joint,
                  const std::optional<Tensor>& top_ks, const std::optional<Tensor>& top_ps,
                  const std::optional<Tensor>& seeds, const Tensor& out) {
    if (out.element_count() == 0) return;
    InfiniOpsTritonTopKTopPSamplingFromLogitsRequest request{};
    request.data_type = static_cast<int>(logits.data_type());
    request.logits = logits.data();
    request.rows = logits.shape()[0];
    request.columns = logits.shape()[1];
    request.logits_row = logits.strides()[0];
    request.logits_column = logits.strides()[1];
    request.top_k = top_k;
    request.top_p = static_cast<float>(top_p);
    request.seed = seed;
    request.offset = offset;
    request.is_joint = joint;
    Place(top_ks, &request.top_ks, &request.top_ks_size, &request.top_ks_row);
    Place(top_ps, &request.top_ps, &request.has_top_ps, &request.top_ps_row);
    Place(seeds, &request.seeds, &request.seeds_size, &request.seeds_row);
    Place(out, &request.out, &request.out_size, &request.out_row);
    triton::Launch("top_k_top_p_sampling_from_logits", &InfiniOpsTritonTopKTopPSamplingFromLogits,
                   request, invocation);
  }
};

INFINI_OPS_REGISTER(TopKTopPSamplingFromLogits, Device::Type::kNvidia, 9);

}  // namespace infini::ops
