#ifndef INFINI_OPS_CUDA_ROWS_H_
#define INFINI_OPS_CUDA_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "cuda/runtime.h"
#include "cuda/types.h"
#include "cuda/vector.h"
#include "cuda/walk.h"
#include "infini/ops/operator.h"

// The shared part of kernels that work row by row; a row is the last dimension.
//
// The threads of a block along x work on one row. If a warp or a power-of-two part of it is enough,
// the block has several rows along y, which never wait for each other.
namespace infini::ops::cuda {

// A vector of 16 bytes, the widest one.
template <typename T>
inline constexpr int kWidth = 16 / static_cast<int>(sizeof(T));

// Vectors that a thread keeps in registers. With half of a multiprocessor's threads running, 64 KiB
// are in flight. No block has more than `kMaxThreads` threads; its kernels have 64 registers.
inline constexpr int kVectors = 4;
inline constexpr int kMaxThreads = 1024;
inline constexpr int kThreadsOfShortRows = 128;

// So few rows do not fill a GPU (an H100 has 132 multiprocessors): a thread gets fewer vectors.
inline constexpr std::uint32_t kFewRows = 256;

// Where the rows of an input and of an output start. Dimensions before the last one are merged if
// both tensors allow it.
struct Rows {
  static constexpr int kMaxDimensions = 8;

  std::uint32_t count;
  int dimensions;
  std::int64_t size;                      // of a row
  std::int64_t input_stride, out_stride;  // along a row
  Divider sizes[kMaxDimensions];          // the innermost first
  std::int64_t input_strides[kMaxDimensions], out_strides[kMaxDimensions];
};

// Nothing if the tensors have more dimensions than `Rows` supports, after merging, or 2^31 rows.
inline std::optional<Rows> RowsOf(const Tensor& input, const Tensor& out) {
  const std::size_t last = input.dimensions() - 1;
  Rows rows{1, 0, input.shape()[last], input.strides()[last], out.strides()[last], {}, {}, {}};
  std::int64_t count = 1;
  std::int64_t sizes[Rows::kMaxDimensions];
  for (std::size_t i = last; i-- > 0;) {
    const std::int64_t size = input.shape()[i];
    const std::int64_t input_stride = input.strides()[i];
    const std::int64_t out_stride = out.strides()[i];
    count *= size;
    if (size == 1) continue;
    const int inner = rows.dimensions - 1;
    if (inner >= 0 && input_stride == rows.input_strides[inner] * sizes[inner] &&
        out_stride == rows.out_strides[inner] * sizes[inner]) {
      sizes[inner] *= size;
      continue;
    }
    if (rows.dimensions == Rows::kMaxDimensions) return std::nullopt;
    sizes[rows.dimensions] = size;
    rows.input_strides[rows.dimensions] = input_stride;
    rows.out_strides[rows.dimensions++] = out_stride;
  }
  if (count > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  rows.count = static_cast<std::uint32_t>(count);
  // Without elements, a size can be 0 or too large.
  for (int i = 0; count > 0 && i < rows.dimensions; ++i) {
    rows.sizes[i] = Divider(static_cast<std::uint32_t>(sizes[i]));
  }
  return rows;
}

// The limit of `RowsOf`, for operators whose input is the first argument.
inline bool HasRows(const Invocation& call) {
  return RowsOf(call.tensor(0), call.out()).has_value();
}
inline constexpr char kRowsLimit[] = "fewer than 2^31 rows, in at most 8 dimensions after merging";

// True if every row of the tensor starts at a boundary of vectors of `width` elements and consists
// of whole ones.
inline bool IsVectorizable(const Tensor& tensor, std::int64_t width) {
  const std::size_t last = tensor.dimensions() - 1;
  const std::size_t bytes = DataTypeSize(tensor.data_type()) * static_cast<std::size_t>(width);
  bool whole = reinterpret_cast<std::uintptr_t>(tensor.data()) % bytes == 0 &&
               tensor.shape()[last] % width == 0 && tensor.strides()[last] == 1;
  for (std::size_t i = 0; i < last; ++i) {
    whole &= tensor.strides()[i] % width == 0 || tensor.shape()[i] == 1;
  }
  return whole;
}

// The same, of vectors of 16 bytes.
inline bool IsVectorizable(const Tensor& tensor) {
  return IsVectorizable(tensor, static_cast<std::int64_t>(16 / DataTypeSize(tensor.data_type())));
}

struct LaunchShape {
  dim3 grid, block;
};

// For rows of `vectors` vectors, of which a thread keeps `kept` if there are enough threads.
inline LaunchShape ShapeOf(const Rows& rows, std::int64_t vectors, int kept = kVectors) {
  const int share = rows.count < kFewRows ? 1 : kept;
  const std::int64_t needed = (vectors + share - 1) / share;
  int threads = 1;
  while (threads < kWarpSize && threads < needed) threads *= 2;
  if (needed > threads) {
    const std::int64_t warps = (needed + kWarpSize - 1) / kWarpSize;
    threads = static_cast<int>(std::min<std::int64_t>(warps * kWarpSize, kMaxThreads));
  }
  const int rows_of_block = threads <= kWarpSize ? kThreadsOfShortRows / threads : 1;
  return {dim3((rows.count + rows_of_block - 1) / rows_of_block), dim3(threads, rows_of_block)};
}

// The threads of a block that processes `count` elements: those of up to eight warps, if each has
// about eight.
inline constexpr int kFewThreads = 8 * kWarpSize;
inline unsigned ThreadsOf(std::int64_t count) {
  int threads = kWarpSize;
  while (threads < kFewThreads && threads * 8 < count) threads *= 2;
  return static_cast<unsigned>(threads);
}

// The row of a thread. All threads of a block must stay until the last reduction, so that a thread
// without a row gets the last row, with `is_row` false: it must compute but not store.
struct Row {
  std::uint32_t index;
  bool is_row;
  std::int64_t input = 0, out = 0;  // offsets

  __device__ explicit Row(const Rows& rows) {
    index = blockIdx.x * blockDim.y + threadIdx.y;
    is_row = index < rows.count;
    if (!is_row) index = rows.count - 1;
    std::uint32_t rest = index;
#pragma unroll 1
    for (int i = 0; i < rows.dimensions; ++i) {
      // The outermost index is already below its size. Most tensors have only this one, and need no
      // division.
      const bool is_outermost = i == rows.dimensions - 1;
      const std::uint32_t next = is_outermost ? 0 : rows.sizes[i].Divide(rest);
      const std::int64_t here = rest - next * rows.sizes[i].divisor;
      input += here * rows.input_strides[i];
      out += here * rows.out_strides[i];
      rest = next;
    }
  }
};

// The vector at `index` of a row. `stride` is the distance of elements, and 1 unless width is 1.
template <int width, typename T>
__device__ Vector<T, width> Load(const T* row, std::int64_t index, std::int64_t stride) {
  if constexpr (width == 1) {
    return {row[index * stride]};
  } else {
    return reinterpret_cast<const Vector<T, width>*>(row)[index];
  }
}

template <int width, typename T>
__device__ void Store(T* row, std::int64_t index, std::int64_t stride,
                      const Vector<T, width>& vector) {
  if constexpr (width == 1) {
    row[index * stride] = vector.elements[0];
  } else {
    reinterpret_cast<Vector<T, width>*>(row)[index] = vector;
  }
}

// Combines the values of a row's threads. All threads get the same result, bit for bit. `partial`
// has room for one value per warp.
template <typename T, typename Combine>
__device__ T Reduce(T value, T* partial, Combine combine) {
  const int threads = static_cast<int>(blockDim.x);
  for (int lanes = (threads < kWarpSize ? threads : kWarpSize) / 2; lanes > 0; lanes /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, lanes, kWarpSize));
  }
  if (threads <= kWarpSize) return value;
  __syncthreads();  // values of a previous call have been read
  if (threadIdx.x % kWarpSize == 0) partial[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  value = partial[0];
  for (int warp = 1; warp < threads / kWarpSize; ++warp) value = combine(value, partial[warp]);
  return value;
}

template <typename T>
__device__ T Sum(T value, T* partial) {
  return Reduce(value, partial, [](T a, T b) { return a + b; });
}

// NaN compares as smaller than any other value.
template <typename T>
__device__ T Maximum(T value, T* partial) {
  return Reduce(value, partial, [](T a, T b) { return fmax(a, b); });
}

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_ROWS_H_
