#ifndef EMULATED_CUDA_BF16_H_
#define EMULATED_CUDA_BF16_H_

#include <type_traits>

#include "cpu/half.h"

// The part of the vendor's header of this name that src/cuda uses.
class __nv_bfloat16 {
 public:
  __nv_bfloat16() = default;
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  __nv_bfloat16(T value) : value_(static_cast<float>(value)) {}
  operator float() const { return static_cast<float>(value_); }

 private:
  infini::ops::cpu::BFloat16 value_;
};

#endif  // EMULATED_CUDA_BF16_H_
