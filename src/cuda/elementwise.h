#ifndef INFINI_OPS_CUDA_ELEMENTWISE_H_
#define INFINI_OPS_CUDA_ELEMENTWISE_H_

#include <algorithm>
#include <cstdint>

#include "core/geometry.h"
#include "cuda/runtime.h"
#include "cuda/vector.h"
#include "cuda/walk.h"

// out[i] = function(inputs[i]...) for tensors with any strides.
namespace infini::ops::cuda {

// The first `left` of `width` elements, or a single one if all are the same.
template <int width, typename T>
__device__ Vector<T, width> LoadVector(const char* address, bool repeats, std::int32_t left) {
  const T* source = reinterpret_cast<const T*>(address);
  if (left >= width && !repeats) return *reinterpret_cast<const Vector<T, width>*>(address);
  Vector<T, width> vector{};
#pragma unroll
  for (int i = 0; i < width; ++i) {
    if (i < left) vector.elements[i] = source[repeats ? 0 : i];
  }
  return vector;
}

template <int width, typename T>
__device__ void StoreVector(char* address, std::int32_t left, const Vector<T, width>& vector) {
  if (left >= width) {
    *reinterpret_cast<Vector<T, width>*>(address) = vector;
    return;
  }
#pragma unroll
  for (int i = 0; i < width; ++i) {
    if (i < left) reinterpret_cast<T*>(address)[i] = vector.elements[i];
  }
}

// A step is `width` elements. A thread loads the elements of `unroll` steps before it computes, so
// that enough loads are in flight.
template <int width, int unroll, typename Out, typename In, int inputs, typename Function>
__global__ void __launch_bounds__(kBlock)
    ElementwiseKernel(const Walk<1 + inputs> walk, const Function function) {
  for (std::uint32_t first = blockIdx.x * kBlock * unroll + threadIdx.x; first < walk.count;
       first += gridDim.x * kBlock * unroll) {
    char* targets[unroll];
    std::int32_t left[unroll];
    Vector<In, width> values[unroll][inputs];
#pragma unroll
    for (int step = 0; step < unroll; ++step) {
      if (first + step * kBlock >= walk.count) continue;
      const Place<1 + inputs> place = walk.Find(first + step * kBlock);
      targets[step] = walk.data[0] + place.offsets[0];
      left[step] = static_cast<std::int32_t>(walk.inner_size - place.inner * width);
#pragma unroll
      for (int i = 0; i < inputs; ++i) {
        values[step][i] = LoadVector<width, In>(walk.data[1 + i] + place.offsets[1 + i],
                                                walk.strides[1 + i][0] == 0, left[step]);
      }
    }
#pragma unroll
    for (int step = 0; step < unroll; ++step) {
      if (first + step * kBlock >= walk.count) continue;
      Vector<Out, width> results;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        if constexpr (inputs == 1) {
          results.elements[i] = function(values[step][0].elements[i]);
        } else {
          results.elements[i] = function(values[step][0].elements[i], values[step][1].elements[i]);
        }
      }
      StoreVector(targets[step], left[step], results);
    }
  }
}

// True if all operands can be read `width` elements at a time, or repeat one element.
template <typename Out, typename In, int operands>
bool TakeVectors(const Geometry<operands>& geometry, int width) {
  if (geometry.rank == 0 || geometry.sizes[0] < width) return false;
  if (!TakesVectors(geometry, 0, sizeof(Out), sizeof(Out) * width)) return false;
  for (int i = 1; i < operands; ++i) {
    const bool repeats = geometry.strides[i][0] == 0;
    if (!repeats && !TakesVectors(geometry, i, sizeof(In), sizeof(In) * width)) return false;
  }
  return true;
}

// Applies `function`, from elements of `In` to one of `Out`, to the whole geometry.
template <typename Out, typename In, int operands, typename Function>
void RunElementwise(const Invocation& invocation, const Geometry<operands>& geometry,
                    const Function& function) {
  constexpr int kInputs = operands - 1;
  constexpr int kWidth = 16 / static_cast<int>(std::max(sizeof(Out), sizeof(In)));
  const DeviceGuard guard(invocation.device);
  const Stream stream = CurrentStream(invocation);
  ForEachWalk(geometry, [&](const Geometry<operands>& piece) {
    const bool wide = TakeVectors<Out, In>(piece, kWidth);
    const Walk<operands> walk(piece, wide ? kWidth : 1);
    const int unroll = wide ? 2 : 4;
    const unsigned blocks = BlockCount(walk.count, unroll, invocation.device);
    if (wide) {
      Launch(ElementwiseKernel<kWidth, 2, Out, In, kInputs, Function>, blocks, kBlock, 0, stream,
             walk, function);
    } else {
      Launch(ElementwiseKernel<1, 4, Out, In, kInputs, Function>, blocks, kBlock, 0, stream, walk,
             function);
    }
  });
}

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_ELEMENTWISE_H_
