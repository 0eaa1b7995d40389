#ifndef INFINI_OPS_CPU_COPY_H_
#define INFINI_OPS_CPU_COPY_H_

#include <cstdint>
#include <cstring>

namespace infini::ops::cpu {

// Copies elements that are so many bytes apart. Not inlined: short loops are slower where they
// cross a line of 64 bytes, and functions begin with one.
using Copy = void (*)(const char* from, std::int64_t from_step, char* to, std::int64_t to_step,
                      std::int64_t count);

template <int size>
void CopyElements(const char* from, std::int64_t from_step, char* to, std::int64_t to_step,
                  std::int64_t count) {
  // A loop of a few bytes takes twice as long where it crosses a line of 64 bytes.
#pragma GCC unroll 4
  for (; count > 0; --count, from += from_step, to += to_step) std::memcpy(to, from, size);
}

// For elements of 1, 2, 4, 8 or 16 bytes.
inline Copy CopyOf(std::int64_t size) {
  return size == 1   ? &CopyElements<1>
         : size == 2 ? &CopyElements<2>
         : size == 4 ? &CopyElements<4>
         : size == 8 ? &CopyElements<8>
                     : &CopyElements<16>;
}

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_COPY_H_
