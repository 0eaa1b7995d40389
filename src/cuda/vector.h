#ifndef INFINI_OPS_CUDA_VECTOR_H_
#define INFINI_OPS_CUDA_VECTOR_H_

namespace infini::ops::cuda {

// The elements that a thread loads or stores at once.
template <typename T, int width>
struct alignas(sizeof(T) * width) Vector {
  T elements[width];
};

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_VECTOR_H_
