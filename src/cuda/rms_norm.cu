#include "base/rms_norm.h"
#include "cuda/norm.h"
#include "cuda/rows.h"

namespace infini::ops {
namespace cuda {
namespace {

template <typename T>
struct Operands {
  const T* input;
  const T* weight;
  T* out;
  std::int64_t weight_stride;
  Computed<T> epsilon;
};

// Rows of whole vectors, short enough that the threads can keep them.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads)
    NormInRegisters(const Rows rows, const Operands<T> operands) {
  using A = Computed<T>;
  __shared__ A partial[kMaxThreads / kWarpSize];
  const int vectors = static_cast<int>(rows.size) / kWidth<T>;
  const Row row(rows);
  Vector<T, kWidth<T>> values[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int index = threadIdx.x + i * blockDim.x;
    if (index < vectors) values[i] = Load<kWidth<T>>(operands.input + row.input, index, 1);
  }
  // Few rows wait for memory only once; all weights do not fit into the registers.
  Vector<T, kWidth<T>> first_weights;
  if (threadIdx.x < vectors) first_weights = Load<kWidth<T>>(operands.weight, threadIdx.x, 1);
  A sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int index = threadIdx.x + i * blockDim.x;
    if (index < vectors) sum += SumOfSquares(values[i]);
  }
  const A scale = ScaleOf(Sum(sum, partial), rows.size, operands.epsilon);
  if (!row.is_row) return;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int index = threadIdx.x + i * blockDim.x;
    if (index >= vectors) continue;
    const auto weights = i == 0 ? first_weights : Load<kWidth<T>>(operands.weight, index, 1);
    Store(operands.out + row.out, index, 1, Scaled(values[i], weights, scale));
  }
}

// All other rows. They are read twice, the second time possibly from a cache.
template <typename T, int width>
__global__ void __launch_bounds__(kMaxThreads)
    NormTwice(const Rows rows, const Operands<T> operands) {
  using A = Computed<T>;
  __shared__ A partial[kMaxThreads / kWarpSize];
  const std::int64_t vectors = rows.size / width;
  const Row row(rows);
  const T* input = operands.input + row.input;
  A sum = 0;
  for (std::int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    sum += SumOfSquares(Load<width>(input, i, rows.input_stride));
  }
  const A scale = ScaleOf(Sum(sum, partial), rows.size, operands.epsilon);
  if (!row.is_row) return;
  for (std::int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const auto values = Load<width>(input, i, rows.input_stride);
    const auto weights = Load<width>(operands.weight, i, operands.weight_stride);
    Store(operands.out + row.out, i, rows.out_stride, Scaled(values, weights, scale));
  }
}

template <typename T>
void Norm(const Rows& rows, const Operands<T>& operands, bool vectorized, Stream stream) {
  const std::int64_t vectors = vectorized ? rows.size / kWidth<T> : rows.size;
  const auto kernel = !vectorized                         ? NormTwice<T, 1>
                      : vectors <= kVectors * kMaxThreads ? NormInRegisters<T>
                                                          : NormTwice<T, kWidth<T>>;
  const LaunchShape shape = ShapeOf(rows, vectors);
  Launch(kernel, shape.grid, shape.block, 0, stream, rows, operands);
}

}  // namespace
}  // namespace cuda

template <>
struct Operator<RmsNorm, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kFloatTypes, &cuda::HasRows, cuda::kRowsLimit};

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& weight,
                  double eps, const Tensor& out) {
    if (out.element_count() == 0) return;
    const bool vectorized =
        cuda::IsVectorizable(input) && cuda::IsVectorizable(weight) && cuda::IsVectorizable(out);
    const cuda::DeviceGuard guard(invocation.device);
    cuda::WithFloatType(out.data_type(), [&](auto* element) {
      using T = ElementOf<decltype(element)>;
      const cuda::Operands<T> operands{input.data<T>(), weight.data<T>(), out.data<T>(),
                                       weight.strides()[0], static_cast<Computed<T>>(eps)};
      cuda::Norm(*cuda::RowsOf(input, out), operands, vectorized, cuda::CurrentStream(invocation));
    });
  }
};

INFINI_OPS_REGISTER(RmsNorm, cuda::kDevice, 0);

}  // namespace infini::ops
