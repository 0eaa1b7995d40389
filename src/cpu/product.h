#ifndef INFINI_OPS_CPU_PRODUCT_H_
#define INFINI_OPS_CPU_PRODUCT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "infini/ops/argument.h"
#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// A tensor seen as a stack of matrices: the last two dimensions are rows and columns.
struct Matrices {
  explicit Matrices(const Tensor& tensor);

  // With an added dimension of size 1 at `position` from the end: 0 makes each vector a column, 1 a
  // row.
  Matrices With1(std::size_t position) const;
  Matrices Transposed() const;

  std::int64_t rows() const { return shape[shape.size() - 2]; }
  std::int64_t columns() const { return shape[shape.size() - 1]; }

  void* data;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements
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
