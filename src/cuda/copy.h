#ifndef INFINI_OPS_CUDA_COPY_H_
#define INFINI_OPS_CUDA_COPY_H_

#include "core/geometry.h"
#include "cuda/runtime.h"
#include "cuda/walk.h"

namespace infini::ops::cuda {

// The largest number of bytes that can be copied at a time, at most `largest`.
inline int UnitOf(const Geometry<2>& geometry, int size, int largest) {
  for (int unit = largest; unit > size; unit /= 2) {
    if (TakesVectors(geometry, 0, size, unit) && TakesVectors(geometry, 1, size, unit) &&
        geometry.sizes[0] * size % unit == 0) {
      return unit;
    }
  }
  return size;
}

// The same geometry in units of `unit` bytes.
inline Geometry<2> InUnits(Geometry<2> geometry, std::int64_t size, std::int64_t unit) {
  if (unit == size) return geometry;
  geometry.sizes[0] = geometry.sizes[0] * size / unit;
  for (auto& strides : geometry.strides) strides[0] = unit;
  return geometry;
}

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
