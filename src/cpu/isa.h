#ifndef INFINI_OPS_CPU_ISA_H_
#define INFINI_OPS_CPU_ISA_H_

namespace infini::ops::cpu {

// The instruction sets that vector code is compiled for. All other code is compiled for the
// platform's minimum, so that a wheel runs everywhere.
enum class Isa {
  kBaseline,  // minimum of the platform: SSE2, NEON
  kAvx2,      // with FMA and F16C: every x86-64-v3
  kAvx512,    // F, BW, DQ and VL: every x86-64-v4
};

// The best instruction set of this processor, limited to the one that INFINI_OPS_CPU_ISA names
// ("baseline", "avx2", "avx512"; for tests).
Isa ActiveIsa();

}  // namespace infini::ops::cpu

// For functions, and after the parameters of lambdas: code with vectors must be inlined into the
// kernel that calls it.
#define INFINI_OPS_INLINE __attribute__((always_inline))

// Before a loop: elements written in one step are not read in later steps. They can be read in the
// same step, which the compiler's own check at run time mistakes for an overlap.
#ifdef __clang__
#define INFINI_OPS_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INFINI_OPS_INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif  // INFINI_OPS_CPU_ISA_H_
