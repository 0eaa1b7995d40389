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

// One result for each element of the vectors.
template <typename Out, int width, typename In, int inputs, typename Function>
__device__ Vector<Out, width> Apply(const Function& function,
                                    const Vector<In, width> (&values)[inputs]) {
  Vector<Out, width> results;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    if constexpr (inputs == 1) {
      results.elements[i] = function(values[0].elements[i]);
    } else {
      results.elements[i] = function(values[0].elements[i], values[1].elements[i]);
    }
  }
  return results;
}

// Tensors of one layout without gaps. Operand 0 is the output.
template <int operands>
struct Dense {
  char* data[operands];
  std::int64_t count;     // number of elements
  std::uint32_t vectors;  // whole ones
};

// A thread takes `unroll` vectors. There is no branch between its loads: 16-bit elements are
// unpacked before branches meet, so that each load would wait for the one before it.
template <int width, int unroll, typename Out, typename In, int inputs, typename Function>
__global__ void __launch_bounds__(kBlock)
    DenseKernel(const Dense<1 + inputs> dense, const Function function) {
  using OutVector = Vector<Out, width>;
  using InVector = Vector<In, width>;
  const std::uint32_t first = blockIdx.x * (kBlock * unroll) + threadIdx.x;
  if (first + (unroll - 1) * kBlock < dense.vectors) {
    InVector values[unroll][inputs];
#pragma unroll
    for (int step = 0; step < unroll; ++step) {
#pragma unroll
      for (int i = 0; i < inputs; ++i) {
        const auto* input = reinterpret_cast<const InVector*>(dense.data[1 + i]);
        values[step][i] = input[first + step * kBlock];
      }
    }
#pragma unroll
    for (int step = 0; step < unroll; ++step) {
      auto* out = reinterpret_cast<OutVector*>(dense.data[0]);
      out[first + step * kBlock] = Apply<Out>(function, values[step]);
    }
    return;
  }
  // The end of the tensor.
#pragma unroll 1
  for (int i = 0; i < unroll * width; ++i) {
    const std::uint32_t vector = first + i / width * kBlock;
    const std::int64_t index = static_cast<std::int64_t>(vector) * width + i % width;
    if (index >= dense.count) return;
    Vector<In, 1> values[inputs];
#pragma unroll
    for (int input = 0; input < inputs; ++input) {
      values[input] = reinterpret_cast<const Vector<In, 1>*>(dense.data[1 + input])[index];
    }
    reinterpret_cast<Vector<Out, 1>*>(dense.data[0])[index] = Apply<Out>(function, values);
  }
}

// The first `left` of `width` elements, or a single one if all are the same.
template <int width, typename T>
__device__ Vector<T, width> LoadElements(const char* address, bool repeats, std::int32_t left) {
  const T* source = reinterpret_cast<const T*>(address);
  Vector<T, width> vector{};
#pragma unroll
  for (int i = 0; i < width; ++i) {
    if (i < left) vector.elements[i] = source[repeats ? 0 : i];
  }
  return vector;
}

// For rows of any distance, `width` elements per thread. Some inputs can repeat one element along a
// row.
template <int width, typename Out, typename In, int inputs, typename Function>
__global__ void __launch_bounds__(kBlock)
    RowsKernel(const Walk<1 + inputs> walk, const Function function) {
  const std::uint32_t index = blockIdx.x * kBlock + threadIdx.x;
  if (index >= walk.count) return;
  const Place<1 + inputs> place = walk.Find(index);
  const auto left = static_cast<std::int32_t>(walk.inner_size - place.inner * width);
  bool is_whole = left >= width;
#pragma unroll
  for (int i = 0; i < inputs; ++i) is_whole &= walk.strides[1 + i][0] != 0;
  Vector<In, width> values[inputs];
  if (is_whole) {  // one branch for all loads
#pragma unroll
    for (int i = 0; i < inputs; ++i) {
      const char* address = walk.data[1 + i] + place.offsets[1 + i];
      values[i] = *reinterpret_cast<const Vector<In, width>*>(address);
    }
  } else {
#pragma unroll
    for (int i = 0; i < inputs; ++i) {
      values[i] = LoadElements<width, In>(walk.data[1 + i] + place.offsets[1 + i],
                                          walk.strides[1 + i][0] == 0, left);
    }
  }
  const Vector<Out, width> results = Apply<Out>(function, values);
  char* target = walk.data[0] + place.offsets[0];
  if (left >= width) {
    *reinterpret_cast<Vector<Out, width>*>(target) = results;
    return;
  }
#pragma unroll
  for (int i = 0; i < width; ++i) {
    if (i < left) reinterpret_cast<Out*>(target)[i] = results.elements[i];
  }
}

// For any strides, `unroll` elements per thread.
template <int unroll, typename Out, typename In, int inputs, typename Function>
__global__ void __launch_bounds__(kBlock)
    StridedKernel(const Walk<1 + inputs> walk, const Function function) {
  const std::uint32_t first = blockIdx.x * (kBlock * unroll) + threadIdx.x;
  if (first >= walk.count) return;
  Place<1 + inputs> places[unroll];
  Vector<In, 1> values[unroll][inputs];
#pragma unroll
  for (int step = 0; step < unroll; ++step) places[step] = walk.FindNear(first + step * kBlock);
#pragma unroll
  for (int step = 0; step < unroll; ++step) {
#pragma unroll
    for (int i = 0; i < inputs; ++i) {
      const char* address = walk.data[1 + i] + places[step].offsets[1 + i];
      values[step][i] = *reinterpret_cast<const Vector<In, 1>*>(address);
    }
  }
#pragma unroll
  for (int step = 0; step < unroll; ++step) {
    if (first + step * kBlock >= walk.count) return;
    char* target = walk.data[0] + places[step].offsets[0];
    *reinterpret_cast<Vector<Out, 1>*>(target) = Apply<Out>(function, values[step]);
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

// True if the tensors have one layout without gaps that can be read `width` elements at a time.
template <typename Out, typename In, int operands>
bool IsDense(const Geometry<operands>& geometry, int width) {
  constexpr std::int64_t kMaxVectors = std::int64_t{1} << 31;
  if (geometry.rank != 1 || !TakeVectors<Out, In>(geometry, width)) return false;
  for (int i = 1; i < operands; ++i) {
    if (geometry.strides[i][0] == 0) return false;
  }
  return geometry.sizes[0] / width < kMaxVectors;
}

// Applies `function`, from elements of `In` to one of `Out`, to the whole geometry.
template <typename Out, typename In, int operands, typename Function>
void RunElementwise(const Invocation& invocation, const Geometry<operands>& geometry,
                    const Function& function) {
  constexpr int kInputs = operands - 1;
  // The larger elements are read or written 16 bytes at a time.
  constexpr int kWidth = 16 / static_cast<int>(std::max(sizeof(Out), sizeof(In)));
  // At least 32 bytes to load per thread. As many threads as a multiprocessor runs then have 64 KiB
  // in flight, which is enough for an H200.
  constexpr int kUnroll = (kWidth < 8 ? 2 : 1) * (kInputs == 1 ? 2 : 1);
  constexpr int kNarrowUnroll = 4;
  const DeviceGuard guard(invocation.device);
  const Stream stream = CurrentStream(invocation);
  if (IsDense<Out, In>(geometry, kWidth)) {
    Dense<operands> dense{{}, geometry.sizes[0], 0};
    std::copy_n(geometry.data, operands, dense.data);
    dense.vectors = static_cast<std::uint32_t>(dense.count / kWidth);
    const std::uint32_t steps = dense.vectors + (dense.count % kWidth != 0);
    Launch(DenseKernel<kWidth, kUnroll, Out, In, kInputs, Function>, BlockCount(steps, kUnroll),
           kBlock, 0, stream, dense, function);
    return;
  }
  ForEachWalk(geometry, [&](const Geometry<operands>& piece) {
    if (TakeVectors<Out, In>(piece, kWidth)) {
      const Walk<operands> walk(piece, kWidth);
      Launch(RowsKernel<kWidth, Out, In, kInputs, Function>, BlockCount(walk.count, 1), kBlock, 0,
             stream, walk, function);
    } else {
      const Walk<operands> walk(piece, 1);
      Launch(StridedKernel<kNarrowUnroll, Out, In, kInputs, Function>,
             BlockCount(walk.count, kNarrowUnroll), kBlock, 0, stream, walk, function);
    }
  });
}

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_ELEMENTWISE_H_
