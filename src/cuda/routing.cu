#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cuda/indices.h"
#include "cuda/routing.h"
#include "cuda/rows.h"
#include "cuda/runtime.h"

namespace infini::ops::cuda {
namespace {

constexpr int kMostGroups = 1024;

// Reads a tensor of float16, bfloat16 or float32, of one or two dimensions; the strides are in
// elements. A score is read so rarely that one kernel for all types is as fast.
struct Floats {
  explicit Floats(const Tensor& tensor) : data(tensor.data()), type(tensor.data_type()) {
    const std::size_t rank = tensor.dimensions();
    stride = tensor.strides()[rank - 1];
    row_stride = rank > 1 ? tensor.strides()[0] : 0;
  }

  __device__ float At(std::int64_t row, std::int64_t i) const {
    const std::int64_t place = row * row_stride + i * stride;
    switch (type) {
      case DataType::kFloat16:
        return static_cast<float>(static_cast<const Float16*>(data)[place]);
      case DataType::kBFloat16:
        return static_cast<float>(static_cast<const BFloat16*>(data)[place]);
      default:
        return static_cast<const float*>(data)[place];
    }
  }

  const void* data;
  DataType type;
  std::int64_t stride;
  std::int64_t row_stride;
};

// Places in the order of their numbers, as integers: NaN is above all others, and -0 is 0. Of equal
// numbers the first is the largest. No place has the key 0, or the largest key.
__device__ std::uint64_t KeyOf(float number, std::uint32_t place) {
  number += 0.0f;
  std::uint32_t bits;
  memcpy(&bits, &number, sizeof(bits));
  const std::uint32_t sign = bits >> 31;
  const std::uint32_t order = number != number ? ~0u - 1 : bits ^ (sign != 0 ? ~0u : 0x80000000u);
  return static_cast<std::uint64_t>(order) << 32 | (~0u - place);
}

__device__ std::uint32_t PlaceOf(std::uint64_t key) {
  return ~0u - static_cast<std::uint32_t>(key);
}

// The largest of the keys that the block's threads have.
__device__ std::uint64_t LargestKey(std::uint64_t key, std::uint64_t* partial) {
  return Reduce(key, partial, [](std::uint64_t a, std::uint64_t b) { return a < b ? b : a; });
}

// What the block of a token needs. The outs are in the order of the call.
struct Router {
  Floats scores;
  Floats bias;
  Indices experts;
  Indices numbers;
  float* weights;
  std::int64_t weight_stride;
  std::int64_t weight_row_stride;
  std::uint32_t count;  // of experts
  std::int64_t chosen;
  bool has_bias;
  bool has_numbers;
  Routing routing;
};

// The weights of the experts of a token. They are computed again wherever one is needed: that takes
// less than to keep them, and any number of experts fits.
struct Weights {
  // All threads of the block must call it.
  __device__ Weights(const Router& r, std::int64_t token, float* partial) : router(r), row(token) {
    if (router.routing.scoring != Scoring::kSoftmax) return;
    largest = -INFINITY;
    for (std::uint32_t i = threadIdx.x; i < router.count; i += blockDim.x) {
      largest = fmax(largest, router.scores.At(row, i));
    }
    largest = Maximum(largest, partial);
    float sum = 0;
    for (std::uint32_t i = threadIdx.x; i < router.count; i += blockDim.x) {
      sum += exp(router.scores.At(row, i) - largest);
    }
    share = 1 / Sum(sum, partial);
  }

  __device__ float At(std::uint32_t expert) const {
    const float score = router.scores.At(row, expert);
    if (router.routing.scoring == Scoring::kNone) return score;
    if (router.routing.scoring == Scoring::kSoftmax) return exp(score - largest) * share;
    const float power = exp(-fabs(score));
    return (score < 0 ? power : 1.0f) / (1.0f + power);
  }

  // The number that decides which experts are chosen.
  __device__ float RankedAt(std::uint32_t expert) const {
    return router.has_bias ? At(expert) + router.bias.At(0, expert) : router.scores.At(row, expert);
  }

  const Router& router;
  std::int64_t row;
  float largest = 0;
  float share = 0;
};

// The sum of the two largest numbers of a group, or the only one.
__device__ float BestOf(const Weights& weights, std::uint32_t first, std::uint32_t size) {
  std::uint64_t best = 0, second = 0;
  for (std::uint32_t i = 0; i < size; ++i) {
    const std::uint64_t key = KeyOf(weights.RankedAt(first + i), i);
    if (key > best) {
      second = best;
      best = key;
    } else if (key > second) {
      second = key;
    }
  }
  const float largest = weights.RankedAt(first + PlaceOf(best));
  return size > 1 ? largest + weights.RankedAt(first + PlaceOf(second)) : largest;
}

// The key of the last group that is kept. `groups` gets the keys of all groups.
__device__ std::uint64_t LeastKept(const Weights& weights, std::uint64_t* groups,
                                   std::uint64_t* partial) {
  const Routing& routing = weights.router.routing;
  const auto count = static_cast<std::uint32_t>(routing.groups);
  const std::uint32_t size = weights.router.count / count;
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    groups[i] = KeyOf(BestOf(weights, i * size, size), i);
  }
  __syncthreads();
  std::uint64_t last = ~std::uint64_t{0};
  for (std::int64_t kept = 0; kept < routing.kept_groups; ++kept) {
    std::uint64_t next = 0;
    for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
      if (groups[i] < last && groups[i] > next) next = groups[i];
    }
    last = LargestKey(next, partial);
  }
  return last;
}

// A block for each token. Each turn finds the largest key below the last one.
template <bool is_grouped>
__global__ void __launch_bounds__(kFewThreads) Route(const Router router) {
  __shared__ float partial[kFewThreads / kWarpSize];
  __shared__ std::uint64_t partial_keys[kFewThreads / kWarpSize];
  const std::int64_t token = blockIdx.x;
  const Weights weights(router, token, partial);
  std::uint64_t least_kept = 0;
  std::uint32_t group_size = 1;
  const std::uint64_t* groups = nullptr;
  if constexpr (is_grouped) {
    __shared__ std::uint64_t keys[kMostGroups];
    least_kept = LeastKept(weights, keys, partial_keys);
    group_size = router.count / static_cast<std::uint32_t>(router.routing.groups);
    groups = keys;
  }
  float* const out = router.weights + token * router.weight_row_stride;
  float sum = 0;
  std::uint64_t last = ~std::uint64_t{0};
  for (std::int64_t j = 0; j < router.chosen; ++j) {
    std::uint64_t next = 0;
    for (std::uint32_t i = threadIdx.x; i < router.count; i += blockDim.x) {
      if constexpr (is_grouped) {
        if (groups[i / group_size] < least_kept) continue;
      }
      const std::uint64_t key = KeyOf(weights.RankedAt(i), i);
      if (key < last && key > next) next = key;
    }
    last = LargestKey(next, partial_keys);
    const std::uint32_t expert = PlaceOf(last);
    const float weight = weights.At(expert);
    sum += weight;
    if (threadIdx.x != 0) continue;
    out[j * router.weight_stride] = weight;
    router.experts.Write(token, j, expert);
    if (router.has_numbers) router.numbers.Write(token, j, j * gridDim.x + token);
  }
  const float divisor = router.routing.renormalize && sum != 0 ? sum : 1.0f;
  __syncthreads();  // the first thread has written all weights
  for (std::int64_t j = threadIdx.x; j < router.chosen; j += blockDim.x) {
    float* const weight = out + j * router.weight_stride;
    *weight = *weight / divisor * router.routing.factor;
  }
}

}  // namespace

void ChooseExperts(const Invocation& invocation, const Routing& routing, const Tensor& scores,
                   const std::optional<Tensor>& bias, const Tensor& weights, const Tensor& experts,
                   const std::optional<Tensor>& numbers) {
  if (weights.element_count() == 0) return;
  const auto count = static_cast<std::uint32_t>(scores.shape()[1]);
  const Router router{Floats(scores),        Floats(bias ? *bias : scores),
                      Indices(experts),      Indices(numbers ? *numbers : experts),
                      weights.data<float>(), weights.strides()[1],
                      weights.strides()[0],  count,
                      weights.shape()[1],    bias.has_value(),
                      numbers.has_value(),   routing};
  const DeviceGuard guard(invocation.device);
  Launch(routing.groups > 1 ? Route<true> : Route<false>,
         dim3(static_cast<unsigned>(scores.shape()[0])), dim3(ThreadsOf(count)), 0,
         CurrentStream(invocation), router);
}

bool HasFewTokens(const Invocation& call) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const Span<std::int64_t> shape = call.tensor(0).shape();
  const bool is_grouped = call.parameters[1].type == Parameter::Type::kInt;
  return shape[0] <= most && shape[1] <= most &&
         (!is_grouped || call.arguments[1].scalar.To<std::int64_t>() <= kMostGroups);
}

}  // namespace infini::ops::cuda
