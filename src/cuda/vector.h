#ifndef INFINI_OPS_CUDA_VECTOR_H_
#define INFINI_OPS_CUDA_VECTOR_H_

namespace infini::ops::cuda {

// Elements that a thread loads or stores at a time.
template <typename T, int width>
struct alignas(sizeof(T) * width) Vector {
  T elements[width];
};

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_VECTOR_H_
