#ifndef INFINI_OPS_CUDA_COPY_H_
#define INFINI_OPS_CUDA_COPY_H_

#include "core/geometry.h"
#include "cuda/runtime.h"

namespace infini::ops::cuda {

// Copies tensors of any strides, several at a launch. Types do not matter, only their size: what
// lies together moves 16 bytes at a time.
class Copier {
 public:
  explicit Copier(const Invocation& invocation) : invocation_(invocation) {}

  // Copies operand 1 to operand 0, of elements of `size` bytes, at the latest when `Flush` is
  // called.
  void Add(const Geometry<2>& geometry, std::size_t size);
  void Flush();

 private:
  static constexpr int kMost = 16;  // what fits into a kernel's 4 KB of arguments

  const Invocation& invocation_;
  int count_ = 0;
  int unit_ = 16;
  std::size_t size_ = 0;
  Geometry<2> geometries_[kMost];
};

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_COPY_H_
