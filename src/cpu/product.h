#ifndef INFINI_OPS_CPU_PRODUCT_H_
#define INFINI_OPS_CPU_PRODUCT_H_

#include "core/product.h"

namespace infini::ops::cpu {

// For all real types.
void Multiply(Product product);
void Multiply(const Invocation& call, ProductOf product_of);

// out = a @ b in float32, of two matrices of int8 or of float8_e4m3fn. `out` is contiguous. Its
// bits depend on the elements of a row and of a column only. Products of int8 are exact for up to
// kExactSteps: the sums are integers of at most 2^24.
inline constexpr std::int64_t kExactSteps = 1024;
void MultiplyBytes(DataType type, const Matrix& a, const Matrix& b, const Matrix& out);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_PRODUCT_H_
