#ifndef INFINI_OPS_CPU_PRODUCT_H_
#define INFINI_OPS_CPU_PRODUCT_H_

#include "core/product.h"

namespace infini::ops::cpu {

// For all real types.
void Multiply(Product product);
void Multiply(const Invocation& call, ProductOf product_of);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_PRODUCT_H_
