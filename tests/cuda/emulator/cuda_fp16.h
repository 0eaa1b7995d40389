#ifndef EMULATED_CUDA_FP16_H_
#define EMULATED_CUDA_FP16_H_

#include <type_traits>

#include "cpu/half.h"

// The part of the vendor's header of this name that src/cuda uses.
class __half {
 public:
  __half() = default;
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  __half(T value) : value_(static_cast<float>(value)) {}
  operator float() const { return static_cast<float>(value_); }

 private:
  infini::ops::cpu::Float16 value_;
};

#endif  // EMULATED_CUDA_FP16_H_
