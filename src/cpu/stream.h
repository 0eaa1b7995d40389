#ifndef INFINI_OPS_CPU_STREAM_H_
#define INFINI_OPS_CPU_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "infini/ops/tensor.h"

// Stores that go to memory without reading the lines that they fill into the caches first. This
// saves a third of the traffic of a sum of two arrays that do not fit into the caches.
namespace infini::ops::cpu {

#ifdef __x86_64__

inline constexpr bool kCanStream = true;

// As memcpy, for a target that is not read soon. FinishStreams must follow on the same thread,
// before another thread can read the target.
inline void Stream(void* target, const void* source, std::size_t bytes) {
  using Words = long long __attribute__((vector_size(16)));
  constexpr std::size_t line = 64;
  char* const out = static_cast<char*>(target);
  const char* const in = static_cast<const char*>(source);
  const std::size_t before = (line - reinterpret_cast<std::uintptr_t>(out) % line) % line;
  std::size_t done = before < bytes ? before : bytes;
  std::memcpy(out, in, done);
  for (; done + line <= bytes; done += line) {
    for (std::size_t i = done; i < done + line; i += sizeof(Words)) {
      Words words;
      std::memcpy(&words, in + i, sizeof(words));
#ifdef __clang__
      __builtin_nontemporal_store(words, reinterpret_cast<Words*>(out + i));
#else
      __builtin_ia32_movntdq(reinterpret_cast<Words*>(out + i), words);
#endif
    }
  }
  std::memcpy(out + done, in + done, bytes - done);
}

inline void FinishStreams() { __builtin_ia32_sfence(); }

#else

inline constexpr bool kCanStream = false;

inline void Stream(void* target, const void* source, std::size_t bytes) {
  std::memcpy(target, source, bytes);
}

inline void FinishStreams() {}

#endif

// From so many bytes on, an out is stored past the caches: no part of it is still there when the
// caller reads it.
inline constexpr std::int64_t kStreamedBytes = 1 << 25;

// An input that is the out has its lines in the caches anyway.
template <typename... Inputs>
bool IsStreamed(const Tensor& out, const Inputs&... inputs) {
  return kCanStream && ((inputs.data() != out.data()) && ...) &&
         out.element_count() * DataTypeSize(out.data_type()) >= kStreamedBytes;
}

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_STREAM_H_
