#ifndef INFINI_OPS_CPU_PRODUCT_H_
#define INFINI_OPS_CPU_PRODUCT_H_

#include <cstdint>
#include <optional>

#include "infini/ops/argument.h"
#include "infini/ops/span.h"
#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// A tensor seen as a stack of matrices: the last two dimensions are rows and columns. It uses the
// tensor's memory: a call needs up to twelve of them, which would each allocate.
struct Matrices {
  // In elements.
  struct Dimension {
    std::int64_t size = 1;
    std::int64_t stride = 0;
  };

  // Without `has_rows` each vector is a row, without `has_columns` a column: the other dimension,
  // of size 1, is not one of the tensor.
  explicit Matrices(const Tensor& tensor, bool has_rows = true, bool has_columns = true);

  Matrices Transposed() const;

  void* data;
  bool is_valid;  // if the tensor has enough dimensions
  Dimension rows;
  Dimension columns;
  Span<std::int64_t> stack_shape;
  Span<std::int64_t> stack_strides;
};

// out = alpha * a @ b + beta * out + bias, for each matrix of `out`; the others broadcast to it.
struct Product {
  Matrices a;
  Matrices b;
  Matrices out;
  DataType type;
  std::optional<Matrices> bias = std::nullopt;
  Scalar alpha = 1;
  Scalar beta = 0;

  // True if the shapes of the matrices match and `out` has exactly the shape of their product.
  bool HasFittingShapes() const;
  // True for real types that can represent `alpha` and `beta`.
  bool HasFittingScalars() const;
  void Run() const;
};

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_PRODUCT_H_
