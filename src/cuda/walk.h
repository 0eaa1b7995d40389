#ifndef INFINI_OPS_CUDA_WALK_H_
#define INFINI_OPS_CUDA_WALK_H_

#include <cstdint>

#include "core/geometry.h"
#include "cuda/runtime.h"

// How kernel threads find their elements in strided tensors.
namespace infini::ops::cuda {

// Division by a number that is not known at compile time: three instructions instead of some 20.
// Granlund and Montgomery, "Division by Invariant Integers using Multiplication", for dividends
// below 2^31.
struct Divider {
  std::uint32_t divisor = 1;
  std::uint32_t multiplier = 1;
  std::uint32_t shift = 0;

  Divider() = default;
  explicit Divider(std::uint32_t value) : divisor(value) {
    while ((std::uint64_t{1} << shift) < value) ++shift;
    const std::uint64_t excess = (std::uint64_t{1} << shift) - value;
    multiplier = static_cast<std::uint32_t>((excess << 32) / value + 1);
  }

  __host__ __device__ std::uint32_t Divide(std::uint32_t dividend) const {
    const std::uint64_t product = static_cast<std::uint64_t>(dividend) * multiplier;
    return (static_cast<std::uint32_t>(product >> 32) + dividend) >> shift;
  }
};

// The position of a thread's step in the innermost dimension.
template <int operands>
struct Place {
  std::int32_t offsets[operands];  // in bytes
  std::uint32_t inner;             // index in the innermost dimension
};

// A geometry whose innermost dimension is processed `width` elements at a time; passed to the
// kernel by value. Larger geometries are split into several of these, so that kernels need only
// 32-bit indices.
template <int operands>
struct Walk {
  static constexpr int kMaxRank = 6;
  static constexpr std::int64_t kMaxOffset = std::int64_t{1} << 31;

  std::uint32_t count = 1;       // number of steps
  std::uint32_t inner_size = 1;  // elements in the innermost dimension
  int rank = 0;
  Divider sizes[kMaxRank];
  std::int32_t strides[operands][kMaxRank] = {};
  char* data[operands];

  Walk() = default;
  Walk(const Geometry<operands>& geometry, int width) : rank(geometry.rank) {
    for (int i = 0; i < rank; ++i) {
      const int step = i == 0 ? width : 1;
      const auto size = static_cast<std::uint32_t>((geometry.sizes[i] + step - 1) / step);
      sizes[i] = Divider(size);
      count *= size;
      for (int operand = 0; operand < operands; ++operand) {
        strides[operand][i] = static_cast<std::int32_t>(geometry.strides[operand][i] * step);
      }
    }
    if (rank > 0) inner_size = static_cast<std::uint32_t>(geometry.sizes[0]);
    for (int operand = 0; operand < operands; ++operand) data[operand] = geometry.data[operand];
  }

  // The position of step `index`, which must be below `count`.
  __device__ Place<operands> Find(std::uint32_t index) const {
    Place<operands> place{};
#pragma unroll
    for (int i = 0; i < kMaxRank; ++i) {
      if (i == rank) break;
      const bool is_last = i + 1 == rank;  // needs no division
      const std::uint32_t next = is_last ? 0 : sizes[i].Divide(index);
      const std::uint32_t here = index - next * sizes[i].divisor;
      if (i == 0) place.inner = here;
#pragma unroll
      for (int operand = 0; operand < operands; ++operand) {
        place.offsets[operand] += static_cast<std::int32_t>(here) * strides[operand][i];
      }
      index = next;
    }
    return place;
  }

  // The same, or the last step if there is no step `index`: a place to read from without a branch,
  // so that loads do not wait for each other.
  __device__ Place<operands> FindNear(std::uint32_t index) const {
    return Find(index < count ? index : count - 1);
  }
};

// Splits the geometry and calls `function` with each part.
template <int operands, typename Function>
void ForEachWalk(const Geometry<operands>& geometry, const Function& function) {
  using Steps = Walk<operands>;
  if (geometry.count() == 0) return;
  ForEachPiece(geometry, Steps::kMaxRank, Steps::kMaxOffset, function);
}

// True if the operand can be read and written `bytes` at a time along the innermost dimension. Its
// elements have `size` bytes.
template <int operands>
bool TakesVectors(const Geometry<operands>& geometry, int operand, std::int64_t size,
                  std::int64_t bytes) {
  if (geometry.rank == 0 || geometry.strides[operand][0] != size) return false;
  if (reinterpret_cast<std::uintptr_t>(geometry.data[operand]) % bytes != 0) return false;
  for (int i = 1; i < geometry.rank; ++i) {
    if (geometry.strides[operand][i] % bytes != 0) return false;
  }
  return true;
}

// Threads per block: so few that the rows of text generation are spread over several
// multiprocessors, and enough to fill a multiprocessor with the blocks that it can run.
inline constexpr int kBlock = 128;

// Blocks for the given number of steps. No thread loops: the device distributes many short blocks
// well, and a loop keeps the loads of its next turn waiting for the stores of this one.
inline unsigned BlockCount(std::uint32_t steps, int steps_per_thread) {
  const std::uint32_t per_block = kBlock * static_cast<std::uint32_t>(steps_per_thread);
  return steps / per_block + (steps % per_block != 0);
}

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_WALK_H_
