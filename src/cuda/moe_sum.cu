#include <algorithm>
#include <cstdint>

#include "base/moe_sum.h"
#include "core/geometry.h"
#include "cuda/rows.h"
#include "cuda/types.h"
#include "cuda/vector.h"
#include "cuda/walk.h"

namespace infini::ops {
namespace cuda {
namespace {

// A thread adds `width` elements of all choices of a token. `walk` has the out and the first
// choice.
template <typename T, int width>
__global__ void __launch_bounds__(kBlock)
    SumChoices(const Walk<2> walk, const std::int64_t choices, const std::int64_t stride) {
  const std::uint32_t index = blockIdx.x * kBlock + threadIdx.x;
  if (index >= walk.count) return;
  const Place<2> place = walk.Find(index);
  const char* from = walk.data[1] + place.offsets[1];
  float sums[width] = {};
#pragma unroll 4
  for (std::int64_t i = 0; i < choices; ++i, from += stride) {
    const auto values = *reinterpret_cast<const Vector<T, width>*>(from);
#pragma unroll
    for (int j = 0; j < width; ++j) sums[j] += static_cast<float>(values.elements[j]);
  }
  Vector<T, width> results;
#pragma unroll
  for (int j = 0; j < width; ++j) results.elements[j] = static_cast<T>(sums[j]);
  *reinterpret_cast<Vector<T, width>*>(walk.data[0] + place.offsets[0]) = results;
}

// Whole vectors of the out, and of each choice.
bool HasVectors(const Geometry<2>& geometry, std::int64_t size, std::int64_t stride) {
  return TakesVectors(geometry, 0, size, 16) && TakesVectors(geometry, 1, size, 16) &&
         geometry.sizes[0] * size % 16 == 0 && stride % 16 == 0;
}

}  // namespace
}  // namespace cuda

template <>
struct Operator<MoeSum, cuda::kDevice, 0> {
  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& out) {
    const std::int64_t choices = input.shape()[1];
    const auto size = static_cast<std::int64_t>(DataTypeSize(out.data_type()));
    const std::int64_t stride = input.strides()[1] * size;
    const std::int64_t strides[] = {input.strides()[0], input.strides()[2]};
    const Tensor first(input.data(), out.shape(), {strides, 2}, input.data_type(), input.device());
    const cuda::DeviceGuard guard(invocation.device);
    cuda::WithSmallFloatType(out.data_type(), [&](auto* element) {
      using T = ElementOf<decltype(element)>;
      cuda::ForEachWalk(MakeGeometry(out, first), [&](const Geometry<2>& piece) {
        const bool is_wide = cuda::HasVectors(piece, size, stride);
        const cuda::Walk<2> walk(piece, is_wide ? cuda::kWidth<T> : 1);
        const auto kernel = is_wide ? cuda::SumChoices<T, cuda::kWidth<T>> : cuda::SumChoices<T, 1>;
        cuda::Launch(kernel, cuda::BlockCount(walk.count, 1), cuda::kBlock, 0,
                     cuda::CurrentStream(invocation), walk, choices, stride);
      });
    });
  }
};

INFINI_OPS_REGISTER(MoeSum, cuda::kDevice, 0);

}  // namespace infini::ops
