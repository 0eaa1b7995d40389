#ifndef INFINI_OPS_CORE_PRODUCT_H_
#define INFINI_OPS_CORE_PRODUCT_H_

#include <cstdint>

#include "core/geometry.h"
#include "infini/ops/argument.h"

// The shared part of gemm, matmul and linear, for every device.
namespace infini::ops {

struct Invocation;

// In elements. A dimension of one element has stride 0.
struct Matrix {
  Matrix Transposed() const { return {data, columns, rows, column_stride, row_stride}; }

  char* data = nullptr;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};

// out = alpha * a @ b + beta * out + bias, for each matrix of a batch.
struct Product {
  // The operands of `batch`.
  enum Operand { kOut, kA, kB, kBias };

  std::int64_t element_size() const { return static_cast<std::int64_t>(DataTypeSize(type)); }
  // The step of the operand along a dimension of the batch, in elements.
  std::int64_t Step(Operand operand, int dimension) const {
    return batch.strides[operand][dimension] / element_size();
  }

  // If one `b` multiplies a dimension of the batch, makes its matrices one with more rows.
  void MergeBatchIntoRows();
  // out^T = b^T @ a^T + bias^T.
  void Transpose();

  DataType type;
  Matrix a;
  Matrix b;
  Matrix out;
  Matrix bias;  // without data: no bias
  Scalar alpha = 1;
  Scalar beta = 0;
  Geometry<4> batch;  // its addresses are those of the matrices
};

// Returns true if the shapes of the call match, and then writes `product` if it is not null.
using ProductOf = bool(const Invocation& call, Product* product);
ProductOf GemmOf;
ProductOf LinearOf;
ProductOf MatmulOf;

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_PRODUCT_H_
