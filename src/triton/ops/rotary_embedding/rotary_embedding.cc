#include "base/rotary_embedding.h"

#include <cstdint>
#include <optional>

#include "core/rotary.h"
#include "triton/launch.h"
#include "triton/operands.h"
#include "triton/rotary_embedding.h"

namespace infini::ops {
namespace {

using Request = InfiniOpsTritonRotaryEmbeddingRequest;

// For any heads; each launch has its own.
Request MakeRequest(const Rotary& rotary, const Tensor& positions, DataType type,
                    const Tensor& cache, bool is_neox, bool is_inverse) {
  Request request{};
  request.data_type = static_cast<int>(type);
  request.cache_type = static_cast<int>(cache.data_type());
  request.positions = rotary.positions.data;
  request.cache = cache.data();
  request.batches = rotary.batches;
  request.tokens = rotary.tokens;
  request.pairs = rotary.pairs;
  request.positions_size = static_cast<std::int64_t>(DataTypeSize(positions.data_type()));
  request.sign = is_inverse ? -1 : 1;
  request.positions_batch = rotary.positions.batch_stride;
  request.positions_token = rotary.positions.token_stride;
  request.cache_rows = cache.shape()[0];
  request.cache_row = cache.strides()[0];
  request.cache_element = cache.strides()[1];
  request.pair_step = is_neox ? 1 : 2;
  request.partner = is_neox ? rotary.pairs : 1;
  return request;
}

}  // namespace

template <>
struct Operator<RotaryEmbedding, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{RotaryEmbedding::kRequirements.types, &triton::IsCountable,
                                  triton::kCountableLimit};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& positions, const Tensor& query,
                  const std::optional<Tensor>&, std::int64_t, const Tensor& cos_sin_cache,
                  bool is_neox, std::int64_t, bool inverse) {
    Rotary rotary;
    RotaryOf(invocation, &rotary);
    if (rotary.pairs == 0 || positions.element_count() == 0) return;
    Request request =
        MakeRequest(rotary, positions, query.data_type(), cos_sin_cache, is_neox, inverse);
    for (const Heads* heads : {&rotary.query, &rotary.key}) {
      if (heads->count == 0) continue;
      request.heads = heads->data;
      request.head_count = heads->count;
      request.heads_batch = heads->batch_stride;
      request.heads_token = heads->token_stride;
      request.heads_head = heads->stride;
      request.heads_element = heads->element_stride;
      triton::Launch("rotary_embedding", &InfiniOpsTritonRotaryEmbedding, request, invocation);
    }
  }
};

INFINI_OPS_REGISTER(RotaryEmbedding, Device::Type::kNvidia, 9);

}  // namespace infini::ops
