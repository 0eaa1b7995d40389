#include "cpu/isa.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace infini::ops::cpu {
namespace {

Isa BestIsa() {
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
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
