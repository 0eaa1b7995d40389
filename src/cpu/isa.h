#ifndef INFINI_OPS_CPU_ISA_H_
#define INFINI_OPS_CPU_ISA_H_

namespace infini::ops::cpu {

// The instruction sets that vector code is compiled for. The library itself is compiled for the
// least that the platform has, so that a wheel runs everywhere.
enum class Isa {
  kBaseline,  // of the platform: SSE2, NEON
  kAvx2,      // with FMA and F16C: every x86-64-v3
  kAvx512,    // F, BW, DQ and VL: every x86-64-v4
};

// The best one that this processor has, or the one that INFINI_OPS_CPU_ISA names ("baseline",
// "avx2", "avx512"; for tests) if that is less.
Isa ActiveIsa();

}  // namespace infini::ops::cpu

// For functions and, after their parameters, for lambdas: what takes vectors has to become part of
// the kernel that calls it.
#define INFINI_OPS_INLINE __attribute__((always_inline))

// Before a loop: what it writes is none of what it reads later, though it may be what it reads in
// the same step, which the compiler's own check at run time takes for an overlap.
#ifdef __clang__
#define INFINI_OPS_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INFINI_OPS_INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif  // INFINI_OPS_CPU_ISA_H_
