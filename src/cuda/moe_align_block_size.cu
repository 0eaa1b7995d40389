#include <algorithm>
#include <cstdint>

#include "base/moe_align_block_size.h"
#include "cuda/indices.h"
#include "cuda/rows.h"
#include "cuda/runtime.h"

namespace infini::ops {
namespace cuda {
namespace {

constexpr int kMostBlocks = 256;
constexpr int kMostSorted = 8192;  // experts, whose counts are 32 KiB of shared memory

struct Choices {
  // The expert of a choice; -1 if it is in no block.
  __device__ std::int64_t At(std::int64_t i) const {
    const std::int64_t row = i / columns;
    const std::int64_t expert = ids.At(row, i - row * columns);
    return expert < experts ? expert : -1;
  }

  Indices ids;
  std::int64_t columns;
  std::int64_t count;
  std::int64_t experts;
  std::int64_t block_size;
};

struct Blocks {
  Indices sorted;
  Indices experts;
  Indices padded;
  std::int64_t sorted_size;
  std::int64_t size;
};

__device__ void Fill(const Indices& to, std::int64_t begin, std::int64_t end, std::int64_t value) {
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) to.Write(0, i, value);
}

// The number of elements in the blocks of the experts before one.
__device__ std::int64_t PaddedBefore(const int* counts, std::int64_t expert,
                                     std::int64_t block_size, std::int64_t* partial) {
  std::int64_t sum = 0;
  for (std::int64_t i = threadIdx.x; i < expert; i += blockDim.x) {
    sum += (counts[i] + block_size - 1) / block_size * block_size;
  }
  return Sum(sum, partial);
}

// The sum of the numbers of all threads before this one.
__device__ int SumBefore(int own, int* sums) {
  __syncthreads();  // sums of a previous call have been read
  sums[threadIdx.x] = own;
  for (unsigned step = 1; step < blockDim.x; step *= 2) {
    __syncthreads();
    const int other = threadIdx.x < step ? 0 : sums[threadIdx.x - step];
    __syncthreads();
    sums[threadIdx.x] += other;
  }
  return sums[threadIdx.x] - own;
}

// Writes an expert's choices in their order: each thread those of its part of all choices.
__device__ void Sort(const Choices& choices, std::int64_t expert, std::int64_t begin,
                     const Indices& sorted, int* sums) {
  const std::int64_t share = (choices.count + blockDim.x - 1) / blockDim.x;
  const std::int64_t first = threadIdx.x * share;
  const std::int64_t last = first + share < choices.count ? first + share : choices.count;
  int own = 0;
  for (std::int64_t i = first; i < last; ++i) own += choices.At(i) == expert;
  begin += SumBefore(own, sums);
  for (std::int64_t i = first; i < last && own > 0; ++i) {
    if (choices.At(i) != expert) continue;
    sorted.Write(0, begin++, i);
    --own;
  }
}

// Each block counts the choices of all experts, and sorts those of some.
__global__ void __launch_bounds__(kFewThreads)
    SortChoices(const Choices choices, const Blocks blocks) {
  __shared__ int counts[kMostSorted];
  __shared__ int sums[kFewThreads];
  __shared__ std::int64_t partial[kFewThreads / kWarpSize];
  for (std::int64_t i = threadIdx.x; i < choices.experts; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < choices.count; i += blockDim.x) {
    const std::int64_t expert = choices.At(i);
    if (expert >= 0) atomicAdd(&counts[expert], 1);
  }
  __syncthreads();
  const std::int64_t size = choices.block_size;
  for (std::int64_t expert = blockIdx.x; expert < choices.experts; expert += gridDim.x) {
    const std::int64_t count = counts[expert];
    if (count == 0) continue;
    const std::int64_t begin = PaddedBefore(counts, expert, size, partial);
    const std::int64_t end = begin + (count + size - 1) / size * size;
    Sort(choices, expert, begin, blocks.sorted, sums);
    Fill(blocks.sorted, begin + count, end, choices.count);
    Fill(blocks.experts, begin / size, end / size, expert);
  }
  if (blockIdx.x != 0) return;
  const std::int64_t end = PaddedBefore(counts, choices.experts, size, partial);
  Fill(blocks.sorted, end, blocks.sorted_size, choices.count);
  Fill(blocks.experts, end / size, blocks.size, 0);
  if (threadIdx.x == 0) blocks.padded.Write(0, 0, end);
}

bool HasFewExperts(const Invocation& call) {
  return call.arguments[1].scalar.To<std::int64_t>() <= kMostSorted;
}

}  // namespace
}  // namespace cuda

template <>
struct Operator<MoeAlignBlockSize, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kIndexTypes, &cuda::HasFewExperts, "at most 8192 experts"};

  static void Run(const Invocation& invocation, const Tensor& topk_ids, std::int64_t num_experts,
                  std::int64_t block_size, const Tensor& sorted_token_ids,
                  const Tensor& experts_ids, const Tensor& num_tokens_post_pad) {
    const std::int64_t columns = topk_ids.shape()[topk_ids.dimensions() - 1];
    const cuda::Choices choices{cuda::Indices(topk_ids), columns, topk_ids.element_count(),
                                num_experts, block_size};
    const cuda::Blocks blocks{cuda::Indices(sorted_token_ids), cuda::Indices(experts_ids),
                              cuda::Indices(num_tokens_post_pad), sorted_token_ids.shape()[0],
                              experts_ids.shape()[0]};
    const auto most = std::min<std::int64_t>(num_experts, cuda::kMostBlocks);
    const cuda::DeviceGuard guard(invocation.device);
    cuda::Launch(cuda::SortChoices, static_cast<unsigned>(most), cuda::ThreadsOf(choices.count), 0,
                 cuda::CurrentStream(invocation), choices, blocks);
  }
};

INFINI_OPS_REGISTER(MoeAlignBlockSize, cuda::kDevice, 0);

}  // namespace infini::ops
