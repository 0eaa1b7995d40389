#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/rotary_embedding.h"
#include "core/rotary.h"
#include "cuda/runtime.h"
#include "cuda/types.h"

namespace infini::ops {
namespace cuda {
namespace {

constexpr int kRotaryThreads = 256;

template <typename W>
struct Factors {
  const W* cache;
  std::int64_t rows;
  std::int64_t row_stride;
  std::int64_t stride;
  bool is_neox;
  bool is_inverse;
};

// Rotates elements `first` and `second` of each head of a token. The threads along y share the
// heads.
template <typename T>
__device__ void RotatePair(const Heads& heads, std::int64_t batch, std::int64_t token,
                           std::int64_t first, std::int64_t second, float cosine, float sine) {
  T* const data =
      reinterpret_cast<T*>(heads.data) + batch * heads.batch_stride + token * heads.token_stride;
  for (std::int64_t i = threadIdx.y; i < heads.count; i += blockDim.y) {
    T* const head = data + i * heads.stride;
    T* const at_x = head + first * heads.element_stride;
    T* const at_y = head + second * heads.element_stride;
    const float x = static_cast<float>(*at_x);
    const float y = static_cast<float>(*at_y);
    *at_x = static_cast<T>(x * cosine - y * sine);
    *at_y = static_cast<T>(y * cosine + x * sine);
  }
}

// A block for each token. Nothing is read or written for a position that the cache does not have.
template <typename T, typename W, typename Position>
__global__ void __launch_bounds__(kRotaryThreads)
    Rotate(const Rotary rotary, const Factors<W> factors) {
  const std::int64_t batch = blockIdx.x / rotary.tokens;
  const std::int64_t token = blockIdx.x % rotary.tokens;
  const std::int64_t position = reinterpret_cast<const Position*>(
      rotary.positions
          .data)[batch * rotary.positions.batch_stride + token * rotary.positions.token_stride];
  if (position < 0 || position >= factors.rows) return;
  const W* const row = factors.cache + position * factors.row_stride;
  for (std::int64_t i = threadIdx.x; i < rotary.pairs; i += blockDim.x) {
    const float cosine = static_cast<float>(row[i * factors.stride]);
    const float sine = static_cast<float>(row[(rotary.pairs + i) * factors.stride]);
    const float signed_sine = factors.is_inverse ? -sine : sine;
    const std::int64_t first = factors.is_neox ? i : 2 * i;
    const std::int64_t second = factors.is_neox ? i + rotary.pairs : 2 * i + 1;
    RotatePair<T>(rotary.query, batch, token, first, second, cosine, signed_sine);
    RotatePair<T>(rotary.key, batch, token, first, second, cosine, signed_sine);
  }
}

template <typename T, typename W>
void LaunchRotate(const Rotary& rotary, DataType positions, const Factors<W>& factors,
                  Stream stream) {
  int pairs = 1;
  while (pairs < kRotaryThreads && pairs < rotary.pairs) pairs *= 2;
  const std::int64_t heads = std::max(rotary.query.count, rotary.key.count);
  const auto shared = static_cast<int>(std::min<std::int64_t>(kRotaryThreads / pairs, heads));
  const auto kernel =
      positions == DataType::kInt32 ? Rotate<T, W, std::int32_t> : Rotate<T, W, std::int64_t>;
  Launch(kernel, dim3(static_cast<std::uint32_t>(rotary.batches * rotary.tokens)),
         dim3(pairs, shared), 0, stream, rotary, factors);
}

// The blocks of a grid.
bool HasTokens(const Invocation& call) {
  return call.tensor(0).element_count() <= std::numeric_limits<std::int32_t>::max();
}

}  // namespace
}  // namespace cuda

template <>
struct Operator<RotaryEmbedding, cuda::kDevice, 0> {
  static constexpr Limits kLimits{RotaryEmbedding::kRequirements.types, &cuda::HasTokens,
                                  "fewer than 2^31 positions"};

  static void Run(const Invocation& invocation, const Tensor& positions, const Tensor& query,
                  const std::optional<Tensor>&, std::int64_t, const Tensor& cos_sin_cache,
                  bool is_neox, std::int64_t, bool inverse) {
    Rotary rotary;
    RotaryOf(invocation, &rotary);
    const bool has_heads = rotary.query.count + rotary.key.count > 0;
    if (!has_heads || rotary.pairs == 0 || positions.element_count() == 0) return;
    const cuda::DeviceGuard guard(invocation.device);
    const auto launch = [&](auto* element, auto* factor) {
      using T = ElementOf<decltype(element)>;
      using W = ElementOf<decltype(factor)>;
      const cuda::Factors<W> factors{cos_sin_cache.data<W>(),
                                     cos_sin_cache.shape()[0],
                                     cos_sin_cache.strides()[0],
                                     cos_sin_cache.strides()[1],
                                     is_neox,
                                     inverse};
      cuda::LaunchRotate<T, W>(rotary, positions.data_type(), factors,
                               cuda::CurrentStream(invocation));
    };
    cuda::WithSmallFloatType(query.data_type(), [&](auto* element) {
      if (cos_sin_cache.data_type() == query.data_type()) return launch(element, element);
      launch(element, static_cast<float*>(nullptr));
    });
  }
};

INFINI_OPS_REGISTER(RotaryEmbedding, cuda::kDevice, 0);

}  // namespace infini::ops
