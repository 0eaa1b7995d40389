#include <algorithm>
#include <cmath>

#include "cuda/rows.h"
#include "cuda/softmax.h"

namespace infini::ops::cuda {
namespace {

// The elements are multiplied by `sign`, which is exact, and their differences by `magnitude`:
// products that are rounded before the comparison could exceed the largest one.
template <typename T>
struct Operands {
  const T* input;
  T* out;
  Divider queries;  // rows per matrix
  Computed<T> sign;
  Computed<T> magnitude;
};

// The number of columns that the row uses.
__device__ inline std::int64_t VisibleOf(std::uint32_t row, const Rows& rows, Divider queries) {
  const std::uint32_t before = queries.Divide(row) * queries.divisor;
  return rows.size - queries.divisor + (row - before) + 1;
}

// exp, precise enough for T.
template <typename T>
__device__ Computed<T> Exp(Computed<T> value) {
  if constexpr (sizeof(T) == 2) {
    return __expf(value);
  } else {
    return exp(value);
  }
}

// Rows of whole vectors, short enough that the threads can keep them. As in torch's softmax, a row
// is NaN if it contains NaN, plus infinity, or only minus infinity: then `sum` is NaN.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads)
    SoftmaxInRegisters(const Rows rows, const Operands<T> operands) {
  using A = Computed<T>;
  constexpr int width = kWidth<T>;
  __shared__ A partial[kMaxThreads / kWarpSize];
  const int vectors = static_cast<int>(rows.size) / width;
  const Row row(rows);
  const int visible = static_cast<int>(VisibleOf(row.index, rows, operands.queries));
  Vector<T, width> loaded[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int index = threadIdx.x + i * blockDim.x;
    if (index * width < visible) loaded[i] = Load<width>(operands.input + row.input, index, 1);
  }
  // The vectors of no thread are visible from here on.
  const auto is_hidden = [&](int i) { return i * static_cast<int>(blockDim.x) * width >= visible; };
  A values[kVectors][width];
  A maximum = A(-INFINITY);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (is_hidden(i)) break;
    const int first = (threadIdx.x + i * blockDim.x) * width;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      const A value = static_cast<A>(loaded[i].elements[j]) * operands.sign;
      values[i][j] = first + j < visible ? value : A(-INFINITY);
      maximum = fmax(maximum, values[i][j]);
    }
  }
  maximum = Maximum(maximum, partial);
  A sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (is_hidden(i)) break;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      values[i][j] = Exp<T>((values[i][j] - maximum) * operands.magnitude);
      sum += values[i][j];
    }
  }
  const A scale = A(1) / Sum(sum, partial);
  if (!row.is_row) return;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int index = threadIdx.x + i * blockDim.x;
    if (index >= vectors) continue;
    Vector<T, width> result;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      const bool is_visible = index * width + j < visible;
      result.elements[j] = static_cast<T>(is_visible ? values[i][j] * scale : A(0));
    }
    Store(operands.out + row.out, index, 1, result);
  }
}

// The sum of exp((x - maximum) * magnitude) over all x so far.
template <typename A>
struct OnlineSum {
  A magnitude;
  A maximum = A(-INFINITY);
  A sum = 0;

  __device__ void Add(A x) {
    if (x > maximum) {
      sum *= exp((maximum - x) * magnitude);
      maximum = x;
    }
    // Minus infinity adds nothing. If it is the maximum, the difference would be NaN.
    if (x != A(-INFINITY)) sum += exp((x - maximum) * magnitude);
  }
};

// All other rows. They are read twice, the second time possibly from a cache.
template <typename T, int width>
__global__ void __launch_bounds__(kMaxThreads)
    SoftmaxTwice(const Rows rows, const Operands<T> operands) {
  using A = Computed<T>;
  __shared__ A partial[kMaxThreads / kWarpSize];
  const Row row(rows);
  const T* input = operands.input + row.input;
  const std::int64_t visible = VisibleOf(row.index, rows, operands.queries);
  OnlineSum<A> online{operands.magnitude};
  for (std::int64_t i = threadIdx.x; i * width < visible; i += blockDim.x) {
    const auto values = Load<width>(input, i, rows.input_stride);
    for (int j = 0; j < width && i * width + j < visible; ++j) {
      online.Add(static_cast<A>(values.elements[j]) * operands.sign);
    }
  }
  const A maximum = Maximum(online.maximum, partial);
  const A power = exp((online.maximum - maximum) * operands.magnitude);
  const A scale = A(1) / Sum(online.sum * power, partial);
  if (!row.is_row) return;
  for (std::int64_t i = threadIdx.x; i * width < rows.size; i += blockDim.x) {
    Vector<T, width> values = Load<width>(input, i, rows.input_stride);
#pragma unroll
    for (int j = 0; j < width; ++j) {
      const A below = static_cast<A>(values.elements[j]) * operands.sign - maximum;
      const A value = exp(below * operands.magnitude) * scale;
      values.elements[j] = static_cast<T>(i * width + j < visible ? value : A(0));
    }
    Store(operands.out + row.out, i, rows.out_stride, values);
  }
}

}  // namespace

void Softmax(const Invocation& invocation, const Tensor& input, double scale, std::int64_t queries,
             const Tensor& out) {
  if (out.element_count() == 0) return;
  const bool vectorized = IsVectorizable(input) && IsVectorizable(out);
  const DeviceGuard guard(invocation.device);
  WithFloatType(out.data_type(), [&](auto* element) {
    using T = ElementOf<decltype(element)>;
    using A = Computed<T>;
    // With a scale of 0 all elements are multiplied by 0.
    const A factor = static_cast<A>(scale);
    const A sign = factor < 0 ? A(-1) : factor == 0 ? A(0) : A(1);
    const Operands<T> operands{input.data<T>(), out.data<T>(),
                               Divider(static_cast<std::uint32_t>(queries)), sign,
                               factor == 0 ? A(1) : factor * sign};
    const Rows rows = *RowsOf(input, out);
    const std::int64_t vectors = vectorized ? rows.size / kWidth<T> : rows.size;
    const auto kernel = !vectorized                         ? SoftmaxTwice<T, 1>
                        : vectors <= kVectors * kMaxThreads ? SoftmaxInRegisters<T>
                                                            : SoftmaxTwice<T, kWidth<T>>;
    const LaunchShape shape = ShapeOf(rows, vectors);
    Launch(kernel, shape.grid, shape.block, 0, CurrentStream(invocation), rows, operands);
  });
}

}  // namespace infini::ops::cuda
