#ifndef INFINI_OPS_CUDA_NORM_H_
#define INFINI_OPS_CUDA_NORM_H_

#include <cmath>
#include <cstdint>

#include "cuda/rows.h"
#include "infini/ops/operator.h"

// The shared part of kernels that normalize rows.
namespace infini::ops::cuda {

// `V` is the type of the elements, or the one that they are computed in.
template <typename V, typename T, int width>
__device__ Vector<T, width> Scaled(const Vector<V, width>& values, const Vector<T, width>& weights,
                                   Computed<T> scale) {
  using A = Computed<T>;
  Vector<T, width> scaled;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const A value = static_cast<A>(values.elements[i]) * scale;
    scaled.elements[i] = static_cast<T>(value * static_cast<A>(weights.elements[i]));
  }
  return scaled;
}

template <typename T, int width>
__device__ Computed<T> SumOfSquares(const Vector<T, width>& values) {
  using A = Computed<T>;
  A sum = 0;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const A value = static_cast<A>(values.elements[i]);
    sum += value * value;
  }
  return sum;
}

template <typename A>
__device__ A ScaleOf(A sum_of_squares, std::int64_t size, A epsilon) {
  return A(1) / sqrt(sum_of_squares / static_cast<A>(size) + epsilon);
}

// Where the operands of a sum that is normalized are. Each thread reads an element of both inputs
// before it writes there, so an out can be an input.
template <typename T>
struct SumOperands {
  const T* input;
  const T* residual;
  const T* weight;
  T* out;
  T* residual_out;
  std::int64_t weight_stride;
  Computed<T> epsilon;
};

// The same place in the rows of all operands: `rows` are those of the input and the out,
// `residual_rows` of the other two.
template <typename T, int width>
struct SumRow {
  static constexpr int kElements = width;

  __device__ SumRow(const Rows& rows, const Rows& residual_rows, const SumOperands<T>& operands)
      : rows_(rows), residual_rows_(residual_rows) {
    const Row row(rows);
    const Row residual_row(residual_rows);
    is_row = row.is_row;
    input_ = operands.input + row.input;
    residual_ = operands.residual + residual_row.input;
    out_ = operands.out + row.out;
    residual_out_ = operands.residual_out + residual_row.out;
  }

  __device__ Vector<Computed<T>, width> Read(std::int64_t i) const {
    const auto a = Load<width>(input_, i, rows_.input_stride);
    const auto b = Load<width>(residual_, i, residual_rows_.input_stride);
    Vector<Computed<T>, width> sums;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      sums.elements[k] =
          static_cast<Computed<T>>(a.elements[k]) + static_cast<Computed<T>>(b.elements[k]);
    }
    return sums;
  }

  __device__ void Write(std::int64_t i, const Vector<Computed<T>, width>& sums,
                        const Vector<T, width>& weights, Computed<T> scale) const {
    Vector<T, width> rounded;
#pragma unroll
    for (int k = 0; k < width; ++k) rounded.elements[k] = static_cast<T>(sums.elements[k]);
    Store(residual_out_, i, residual_rows_.out_stride, rounded);
    Store(out_, i, rows_.out_stride, Scaled(sums, weights, scale));
  }

  bool is_row;

 private:
  const Rows& rows_;
  const Rows& residual_rows_;
  const T* input_;
  const T* residual_;
  T* out_;
  T* residual_out_;
};

// Sums are wider than the elements: a thread keeps half as many vectors.
inline constexpr int kSumVectors = kVectors / 2;

// Rows of whole vectors, short enough that the threads can keep them.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads)
    AddNormInRegisters(const Rows rows, const Rows residual_rows, const SumOperands<T> operands) {
  using A = Computed<T>;
  __shared__ A partial[kMaxThreads / kWarpSize];
  const int vectors = static_cast<int>(rows.size) / kWidth<T>;
  const SumRow<T, kWidth<T>> row(rows, residual_rows, operands);
  Vector<A, kWidth<T>> sums[kSumVectors];
  A squares = 0;
#pragma unroll
  for (int i = 0; i < kSumVectors; ++i) {
    const int index = threadIdx.x + i * blockDim.x;
    if (index < vectors) sums[i] = row.Read(index);
  }
#pragma unroll
  for (int i = 0; i < kSumVectors; ++i) {
    const int index = threadIdx.x + i * blockDim.x;
    if (index < vectors) squares += SumOfSquares(sums[i]);
  }
  const A scale = ScaleOf(Sum(squares, partial), rows.size, operands.epsilon);
  if (!row.is_row) return;
#pragma unroll
  for (int i = 0; i < kSumVectors; ++i) {
    const int index = threadIdx.x + i * blockDim.x;
    if (index >= vectors) continue;
    row.Write(index, sums[i], Load<kWidth<T>>(operands.weight, index, 1), scale);
  }
}

// All other rows. They are read twice, the second time possibly from a cache.
template <typename T, int width>
__global__ void __launch_bounds__(kMaxThreads)
    AddNormTwice(const Rows rows, const Rows residual_rows, const SumOperands<T> operands) {
  using A = Computed<T>;
  __shared__ A partial[kMaxThreads / kWarpSize];
  const std::int64_t vectors = rows.size / width;
  const SumRow<T, width> row(rows, residual_rows, operands);
  A squares = 0;
  for (std::int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    squares += SumOfSquares(row.Read(i));
  }
  const A scale = ScaleOf(Sum(squares, partial), rows.size, operands.epsilon);
  if (!row.is_row) return;
  for (std::int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const auto weights = Load<width>(operands.weight, i, operands.weight_stride);
    row.Write(i, row.Read(i), weights, scale);
  }
}

// As base/add_rms_norm.h.
inline void AddRmsNorm(const Invocation& invocation, const Tensor& input, const Tensor& residual,
                       const Tensor& weight, double eps, const Tensor& out,
                       const Tensor& residual_out) {
  if (out.element_count() == 0) return;
  bool vectorized = IsVectorizable(weight);
  for (const Tensor* tensor : {&input, &residual, &out, &residual_out}) {
    vectorized &= IsVectorizable(*tensor);
  }
  const DeviceGuard guard(invocation.device);
  WithSmallFloatType(out.data_type(), [&](auto* element) {
    using T = ElementOf<decltype(element)>;
    const SumOperands<T> operands{input.data<T>(),
                                  residual.data<T>(),
                                  weight.data<T>(),
                                  out.data<T>(),
                                  residual_out.data<T>(),
                                  weight.strides()[0],
                                  static_cast<Computed<T>>(eps)};
    const Rows rows = *RowsOf(input, out);
    const std::int64_t vectors = vectorized ? rows.size / kWidth<T> : rows.size;
    const auto kernel = !vectorized                            ? AddNormTwice<T, 1>
                        : vectors <= kSumVectors * kMaxThreads ? AddNormInRegisters<T>
                                                               : AddNormTwice<T, kWidth<T>>;
    const LaunchShape shape = ShapeOf(rows, vectors, kSumVectors);
    Launch(kernel, shape.grid, shape.block, 0, CurrentStream(invocation), rows,
           *RowsOf(residual, residual_out), operands);
  });
}

// The limit of `RowsOf` for the operands of `AddRmsNorm`, whose outs follow each other.
inline bool HasSumRows(const Invocation& call) {
  return RowsOf(call.tensor(0), call.out()) &&
         RowsOf(call.tensor(1), call.tensor(call.FirstWritten() + 1));
}

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_NORM_H_
