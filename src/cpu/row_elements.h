#ifndef INFINI_OPS_CPU_ROW_ELEMENTS_H_
#define INFINI_OPS_CPU_ROW_ELEMENTS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/iteration.h"

namespace infini::ops::cpu {

// Elements of a row that are gathered at a time if they are not contiguous. They stay in the
// first-level cache.
inline constexpr std::int64_t kBlock = 512;

// One operand's row as contiguous blocks, which vector code needs: the elements themselves, or a
// copy of them.
template <typename T>
class RowElements {
 public:
  // `stride` is in bytes.
  RowElements(char* data, std::int64_t stride) : data_(data), stride_(stride) {}
  RowElements(const Tile& tile, std::int64_t row, std::size_t operand)
      : RowElements(tile.data[operand] + row * tile.row_strides[operand], tile.strides[operand]) {}

  bool is_contiguous() const { return stride_ == sizeof(T); }
  T* At(std::int64_t i) const { return reinterpret_cast<T*>(data_ + i * stride_); }

  // The elements from `begin` on; gathered into `buffer` if they are not contiguous.
  const T* Read(std::int64_t begin, std::int64_t count, T* buffer) const {
    if (is_contiguous()) return At(begin);
    if (stride_ == 0) {
      // All blocks of a repeated element are the same.
      if (begin == 0) std::fill_n(buffer, count, *At(0));
      return buffer;
    }
    // Unrolled: a loop of a few bytes takes twice as long where it crosses a line of 64 bytes.
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < count; ++i) buffer[i] = *At(begin + i);
    return buffer;
  }

  // Where to write the elements from `begin` on before `Write`: in place, or into `buffer`.
  T* Room(std::int64_t begin, T* buffer) const { return is_contiguous() ? At(begin) : buffer; }

  void Write(std::int64_t begin, std::int64_t count, const T* values) const {
    if (is_contiguous()) {
      if (values != At(begin)) std::memcpy(At(begin), values, count * sizeof(T));
      return;
    }
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < count; ++i) *At(begin + i) = values[i];
  }

 private:
  char* data_;
  std::int64_t stride_;
};

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ROW_ELEMENTS_H_
