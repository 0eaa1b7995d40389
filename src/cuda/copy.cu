#include <algorithm>
#include <cstdint>

#include "cuda/copy.h"
#include "cuda/vector.h"
#include "cuda/walk.h"

namespace infini::ops::cuda {
namespace {

constexpr int kUnroll = 4;

template <int size>
struct Batch {
  Walk<2> walks[size];
};

// One row of blocks per tensor.
template <typename Unit, int size>
__global__ void __launch_bounds__(kBlock) CopyKernel(const Batch<size> batch) {
  const Walk<2>& walk = batch.walks[size == 1 ? 0 : blockIdx.y];
  const std::uint32_t first = blockIdx.x * (kBlock * kUnroll) + threadIdx.x;
  if (first >= walk.count) return;
  Place<2> places[kUnroll];
  Unit values[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) places[i] = walk.FindNear(first + i * kBlock);
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    values[i] = *reinterpret_cast<const Unit*>(walk.data[1] + places[i].offsets[1]);
  }
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (first + i * kBlock >= walk.count) return;
    *reinterpret_cast<Unit*>(walk.data[0] + places[i].offsets[0]) = values[i];
  }
}

template <typename Unit, int size>
void LaunchCopy(const Invocation& invocation, const Geometry<2>* geometries, int count,
                std::int64_t element_size) {
  Batch<size> batch;
  std::uint32_t most = 0;
  for (int i = 0; i < count; ++i) {
    batch.walks[i] = Walk<2>(InUnits(geometries[i], element_size, sizeof(Unit)), 1);
    most = std::max(most, batch.walks[i].count);
  }
  const DeviceGuard guard(invocation.device);
  const dim3 grid(BlockCount(most, kUnroll), static_cast<unsigned>(count));
  Launch(CopyKernel<Unit, size>, grid, kBlock, 0, CurrentStream(invocation), batch);
}

template <int size>
void LaunchCopyOf(int unit, const Invocation& invocation, const Geometry<2>* geometries, int count,
                  std::int64_t element_size) {
  switch (unit) {
    case 16:
      return LaunchCopy<Vector<std::uint64_t, 2>, size>(invocation, geometries, count,
                                                        element_size);
    case 8:
      return LaunchCopy<std::uint64_t, size>(invocation, geometries, count, element_size);
    case 4:
      return LaunchCopy<std::uint32_t, size>(invocation, geometries, count, element_size);
    case 2:
      return LaunchCopy<std::uint16_t, size>(invocation, geometries, count, element_size);
    default:
      return LaunchCopy<std::uint8_t, size>(invocation, geometries, count, element_size);
  }
}

}  // namespace

void Copier::Add(const Geometry<2>& geometry, std::size_t size) {
  size_ = size;
  ForEachWalk(geometry, [&](const Geometry<2>& piece) {
    if (count_ == kMost) Flush();
    unit_ = UnitOf(piece, static_cast<int>(size), unit_);
    geometries_[count_++] = piece;
  });
}

void Copier::Flush() {
  const auto size = static_cast<std::int64_t>(size_);
  if (count_ == 1) {
    LaunchCopyOf<1>(unit_, invocation_, geometries_, count_, size);
  } else if (count_ > 1) {
    LaunchCopyOf<kMost>(unit_, invocation_, geometries_, count_, size);
  }
  count_ = 0;
  unit_ = 16;
}

}  // namespace infini::ops::cuda
