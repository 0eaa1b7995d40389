#include "cpu/isa.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace infini::ops::cpu {
namespace {

#ifdef __x86_64__
// `__builtin_cpu_supports("f16c")` does not compile with Clang 14.
bool HasF16c() {
  unsigned int eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
#endif

Isa BestIsa() {
#ifdef __x86_64__
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx2) return has_avx512 ? Isa::kAvx512 : Isa::kAvx2;
#endif
  return Isa::kBaseline;
}

Isa AllowedIsa() {
  const char* const name = std::getenv("INFINI_OPS_CPU_ISA");
  const std::string_view allowed = name ? name : "";
  if (allowed == "baseline") return Isa::kBaseline;
  if (allowed == "avx2") return Isa::kAvx2;
  return Isa::kAvx512;
}

}  // namespace

Isa ActiveIsa() {
  static const Isa isa = std::min(BestIsa(), AllowedIsa());
  return isa;
}

}  // namespace infini::ops::cpu
