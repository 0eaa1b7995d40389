#ifndef INFINI_OPS_CORE_PHILOX_H_
#define INFINI_OPS_CORE_PHILOX_H_

#include <cstdint>

namespace infini::ops {

// The first 64 bits of Philox4x32-10 (Salmon et al., 2011) of a key and a counter of 128 bits, the
// lower half first. As `tl.philox` of Triton.
inline std::uint64_t Philox(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  auto x0 = static_cast<std::uint32_t>(low), x1 = static_cast<std::uint32_t>(low >> 32);
  auto x2 = static_cast<std::uint32_t>(high), x3 = static_cast<std::uint32_t>(high >> 32);
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53} * x0;
    const std::uint64_t second = std::uint64_t{0xCD9E8D57} * x2;
    x0 = static_cast<std::uint32_t>(second >> 32) ^ x1 ^ k0;
    x1 = static_cast<std::uint32_t>(second);
    x2 = static_cast<std::uint32_t>(first >> 32) ^ x3 ^ k1;
    x3 = static_cast<std::uint32_t>(first);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return x0 | std::uint64_t{x1} << 32;
}

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_PHILOX_H_
