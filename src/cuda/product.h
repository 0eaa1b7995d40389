#ifndef INFINI_OPS_CUDA_PRODUCT_H_
#define INFINI_OPS_CUDA_PRODUCT_H_

#include "core/product.h"
#include "cuda/runtime.h"

namespace infini::ops::cuda {

// Supports all strides. BLAS computes products in which one dimension of each matrix is contiguous,
// and the rows or columns do not overlap. A simple kernel computes the others, element by element.
void Multiply(const Invocation& call, ProductOf product_of);

// Frees the data that `Multiply` keeps.
void ClearProductCache();

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_PRODUCT_H_
