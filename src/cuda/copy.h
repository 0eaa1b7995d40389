#ifndef INFINI_OPS_CUDA_COPY_H_
#define INFINI_OPS_CUDA_COPY_H_

#include "core/geometry.h"
#include "cuda/runtime.h"

namespace infini::ops::cuda {

// Copies tensors with any strides, several per launch. Only the size of the element type matters.
// Contiguous parts are copied 16 bytes at a time.
class Copier {
 public:
  explicit Copier(const Invocation& invocation) : invocation_(invocation) {}

  // Copies operand 1 to operand 0; elements have `size` bytes. The copy may start only when `Flush`
  // is called.
  void Add(const Geometry<2>& geometry, std::size_t size);
  void Flush();

 private:
  static constexpr int kMost = 16;  // limited by the 4 KB of arguments of a kernel

  const Invocation& invocation_;
  int count_ = 0;
  int unit_ = 16;
  std::size_t size_ = 0;
  Geometry<2> geometries_[kMost];
};

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_COPY_H_
