// Compiles the kernels of INFINI_OPS_KERNELS once per instruction set, each in its own namespace:
//
//   #define INFINI_OPS_KERNELS "cpu/norm_kernels.h"
//   #include "cpu/for_each_isa.h"
//
// It uses a pragma instead of compiler options. Code from other headers, above all templates of the
// standard library, is then still compiled for every processor, whichever copy the linker keeps.

#define INFINI_OPS_ISA baseline
#define INFINI_OPS_VECTOR_BYTES 16
#include "cpu/for_this_isa.h"

#ifdef __x86_64__

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#define INFINI_OPS_ISA avx2
#define INFINI_OPS_VECTOR_BYTES 32
#include "cpu/for_this_isa.h"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#ifdef __clang__
#pragma clang attribute push(                                                    \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#endif
#define INFINI_OPS_ISA avx512
#define INFINI_OPS_VECTOR_BYTES 64
#include "cpu/for_this_isa.h"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__

#ifndef INFINI_OPS_HAS_VECTORS
#define INFINI_OPS_HAS_VECTORS
#endif
#undef INFINI_OPS_KERNELS
