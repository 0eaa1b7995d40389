#ifndef INFINI_OPS_CPU_PRODUCT_H_
#define INFINI_OPS_CPU_PRODUCT_H_

#include "core/product.h"

namespace infini::ops::cpu {

// For all real types.
void Multiply(Product product);
void Multiply(const Invocation& call, ProductOf product_of);

// out = a @ b in float32, of two matrices of float8_e4m3fn. `out` is contiguous. Its bits depend on
// the elements of a row and of a column only.
void MultiplyFloat8(const Matrix& a, const Matrix& b, const Matrix& out);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_PRODUCT_H_
