#ifndef INFINI_OPS_CPU_KERNELS_H_
#define INFINI_OPS_CPU_KERNELS_H_

// Includes and macros for the kernels of for_each_isa.h. Include it before that header.
#ifdef __aarch64__
#include <arm_neon.h>
#endif

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/elements.h"
#include "cpu/half.h"
#include "cpu/isa.h"

namespace infini::ops::cpu {

// Lanes of float32 in the widest vectors.
inline constexpr std::int64_t kMostLanes = 16;

}  // namespace infini::ops::cpu

// An expression for a kernel in the namespace of the active instruction set.
#ifdef __x86_64__
#define INFINI_OPS_KERNEL(...)                                         \
  (::infini::ops::cpu::ActiveIsa() == ::infini::ops::cpu::Isa::kAvx512 \
       ? ::infini::ops::cpu::avx512::__VA_ARGS__                       \
   : ::infini::ops::cpu::ActiveIsa() == ::infini::ops::cpu::Isa::kAvx2 \
       ? ::infini::ops::cpu::avx2::__VA_ARGS__                         \
       : ::infini::ops::cpu::baseline::__VA_ARGS__)
#else
#define INFINI_OPS_KERNEL(...) (::infini::ops::cpu::baseline::__VA_ARGS__)
#endif

#endif  // INFINI_OPS_CPU_KERNELS_H_
