#include <cstdint>
#include <cstring>

#include "base/dynamic_scaled_fp8_quant.h"
#include "cuda/quantize.h"
#include "cuda/runtime.h"
#include "cuda/walk.h"

namespace infini::ops {
namespace cuda {
namespace {

constexpr int kSteps = 16;  // of a thread

__global__ void ClearScale(float* const scale) { *scale = 0; }

// Raises the scale to the one of the largest magnitude: the order of floats that are not negative
// is that of their bits.
template <typename T, int width>
__global__ void __launch_bounds__(kBlock) RaiseScale(const Walk<1> walk, float* const scale) {
  __shared__ float partial[kBlock / kWarpSize];
  const std::uint32_t first = blockIdx.x * (kBlock * kSteps) + threadIdx.x;
  float magnitude = 0;
#pragma unroll 4
  for (int step = 0; step < kSteps; ++step) {
    const Place<1> place = walk.FindNear(first + step * kBlock);
    const auto values = *reinterpret_cast<const Vector<T, width>*>(walk.data[0] + place.offsets[0]);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float size = fabs(static_cast<float>(values.elements[i]));
      if (size > magnitude) magnitude = size;  // not of NaN
    }
  }
  const float own = Maximum(magnitude, partial) / kMostFloat8;
  if (threadIdx.x != 0) return;
  int bits;
  memcpy(&bits, &own, sizeof(bits));
  atomicMax(reinterpret_cast<int*>(scale), bits);
}

__global__ void FinishScale(float* const scale) {
  if (!(*scale >= kLeastNormal)) *scale = kLeastScale;
}

void FindScale(const Invocation& invocation, const Tensor& input, float* scale) {
  const DeviceGuard guard(invocation.device);
  const Stream stream = CurrentStream(invocation);
  Launch(ClearScale, 1, 1, 0, stream, scale);
  WithSmallFloatType(input.data_type(), [&](auto* element) {
    using T = ElementOf<decltype(element)>;
    ForEachWalk(MakeGeometry(input), [&](const Geometry<1>& piece) {
      const bool is_wide = TakesVectors(piece, 0, sizeof(T), 16) && piece.sizes[0] % kWidth<T> == 0;
      const Walk<1> walk(piece, is_wide ? kWidth<T> : 1);
      Launch(is_wide ? RaiseScale<T, kWidth<T>> : RaiseScale<T, 1>, BlockCount(walk.count, kSteps),
             kBlock, 0, stream, walk, scale);
    });
  });
  Launch(FinishScale, 1, 1, 0, stream, scale);
}

}  // namespace
}  // namespace cuda

template <>
struct Operator<DynamicScaledFp8Quant, cuda::kDevice, 0> {
  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& result,
                  const Tensor& scale) {
    cuda::FindScale(invocation, input, scale.data<float>());
    cuda::QuantizeTensor<cuda::Float8>(invocation, input, cuda::Float8Rule{scale.data<float>()},
                                       result);
  }
};

INFINI_OPS_REGISTER(DynamicScaledFp8Quant, cuda::kDevice, 0);

}  // namespace infini::ops
