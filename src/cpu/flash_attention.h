#ifndef INFINI_OPS_CPU_FLASH_ATTENTION_H_
#define INFINI_OPS_CPU_FLASH_ATTENTION_H_

#include <cstdint>

#include "core/attention.h"

namespace infini::ops::cpu {

// How messages name the operator and its lengths.
struct FlashNames {
  const char* operator_name;
  const char* key_counts;
};

// Computes a call whose sequences have at most these numbers of queries and keys. Throws
// `std::invalid_argument` before it writes anything if an index is out of range.
void FlashAttend(const FlashNames& names, const FlashAttention& attention,
                 std::int64_t most_queries, std::int64_t most_keys);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_FLASH_ATTENTION_H_
