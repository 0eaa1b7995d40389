#ifndef INFINI_OPS_CUDA_INDICES_H_
#define INFINI_OPS_CUDA_INDICES_H_

#include <cstddef>
#include <cstdint>

#include "cuda/runtime.h"
#include "infini/ops/tensor.h"

namespace infini::ops::cuda {

// Reads and writes a tensor of int32 or int64, of one or two dimensions; the strides are in
// elements. One kernel is compiled for both types.
struct Indices {
  Indices() = default;  // no tensor
  explicit Indices(const Tensor& tensor)
      : data(tensor.data()), is_int32(tensor.data_type() == DataType::kInt32) {
    const std::size_t rank = tensor.dimensions();
    stride = tensor.strides()[rank - 1];
    row_stride = rank > 1 ? tensor.strides()[0] : 0;
  }

  __device__ std::int64_t At(std::int64_t row, std::int64_t i) const {
    const std::int64_t place = row * row_stride + i * stride;
    return is_int32 ? static_cast<const std::int32_t*>(data)[place]
                    : static_cast<const std::int64_t*>(data)[place];
  }
  __device__ void Write(std::int64_t row, std::int64_t i, std::int64_t value) const {
    const std::int64_t place = row * row_stride + i * stride;
    if (is_int32) {
      static_cast<std::int32_t*>(data)[place] = static_cast<std::int32_t>(value);
    } else {
      static_cast<std::int64_t*>(data)[place] = value;
    }
  }

  void* data = nullptr;
  bool is_int32 = false;
  std::int64_t stride = 0;
  std::int64_t row_stride = 0;
};

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_INDICES_H_
