#ifndef INFINI_OPS_CUDA_TYPES_H_
#define INFINI_OPS_CUDA_TYPES_H_

#include "core/elements.h"
#include "cuda/runtime.h"

// core/elements.h with the vendor's 16-bit floats.
namespace infini::ops::cuda {

template <typename Function>
auto WithSmallFloatType(DataType type, const Function& function) {
  return ops::WithSmallFloatType<Float16, BFloat16>(type, function);
}

template <typename Function>
auto WithFloatType(DataType type, const Function& function) {
  return ops::WithFloatType<Float16, BFloat16>(type, function);
}

template <typename Function>
auto WithRealType(DataType type, const Function& function) {
  return ops::WithRealType<Float16, BFloat16>(type, function);
}

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_TYPES_H_
