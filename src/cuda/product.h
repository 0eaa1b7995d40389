#ifndef INFINI_OPS_CUDA_PRODUCT_H_
#define INFINI_OPS_CUDA_PRODUCT_H_

#include <cstdint>
#include <optional>

#include "infini/ops/operator.h"

// The shared part of gemm, matmul and linear.
namespace infini::ops::cuda {

// The last two dimensions of a tensor, and its strides along the batch dimensions.
struct Matrix {
  static constexpr int kMaxBatchDimensions = 8;

  void* data = nullptr;
  std::int64_t row_stride = 0, column_stride = 0;
  std::int64_t batch_strides[kMaxBatchDimensions] = {};
};

// out = alpha * a @ b + beta * out + bias: `a` is [m, k], `b` [k, n], `bias` [n] or nullptr.
struct Product {
  DataType data_type = DataType::kFloat32;
  std::int64_t m = 0, n = 0, k = 0;
  int batch_dimensions = 0;  // merged if all three tensors allow it, innermost first
  std::int64_t batch_sizes[Matrix::kMaxBatchDimensions] = {};
  Matrix a, b, out;
  double alpha = 1, beta = 0;
  const void* bias = nullptr;
  std::int64_t bias_stride = 0;
};

// Describes the product of tensors with at least two dimensions. The batch dimensions of the inputs
// broadcast to those of `out`. Returns nothing for other shapes, types other than float16,
// bfloat16, float32 and float64, unaligned elements, an `out` that shares memory with an input, or
// more than 8 batch dimensions after merging.
std::optional<Product> ProductOf(const Tensor& a, const Tensor& b, const Tensor& out);

// Supports all strides. BLAS computes products in which one dimension of each matrix is contiguous,
// and the rows or columns do not overlap. A simple kernel computes the others, element by element.
void Multiply(const Invocation& invocation, const Product& product);

// Frees the data that `Multiply` keeps.
void ClearProductCache();

// A view with a dimension of one element inserted before dimension `index`.
Tensor Unsqueezed(const Tensor& tensor, std::size_t index);
// A view with the last two dimensions swapped.
Tensor Transposed(const Tensor& tensor);

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_PRODUCT_H_
