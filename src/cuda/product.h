#ifndef INFINI_OPS_CUDA_PRODUCT_H_
#define INFINI_OPS_CUDA_PRODUCT_H_

#include <cstdint>
#include <optional>

#include "infini/ops/operator.h"

// What gemm, matmul and linear share.
namespace infini::ops::cuda {

// The last two dimensions of a tensor, and its steps along those before them.
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
  int batch_dimensions = 0;  // merged where all three step alike, the innermost first
  std::int64_t batch_sizes[Matrix::kMaxBatchDimensions] = {};
  Matrix a, b, out;
  double alpha = 1, beta = 0;
  const void* bias = nullptr;
  std::int64_t bias_stride = 0;
};

// The product of tensors of at least two dimensions; those before the last two of the inputs
// broadcast to those of `out`. Nothing for other shapes, types that are not one of float16,
// bfloat16, float32 and float64, unaligned elements, an `out` that shares memory with an input, or
// more than 8 dimensions before the last two after merging.
std::optional<Product> ProductOf(const Tensor& a, const Tensor& b, const Tensor& out);

// All strides are right. BLAS takes those where, in each matrix, one dimension is contiguous and
// the other steps over it; the rest is computed by a simple kernel, element by element.
void Multiply(const Invocation& invocation, const Product& product);

// Frees what `Multiply` keeps.
void ClearProductCache();

// A view with a dimension of one element before dimension `index`.
Tensor Unsqueezed(const Tensor& tensor, std::size_t index);
// A view with the last two dimensions swapped.
Tensor Transposed(const Tensor& tensor);

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_PRODUCT_H_
