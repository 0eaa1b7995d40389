#ifndef INFINI_OPS_CPU_ATTENTION_H_
#define INFINI_OPS_CPU_ATTENTION_H_

#include <cstdint>

#include "core/attention.h"
#include "core/function_ref.h"

namespace infini::ops::cpu {

// Computes all heads of sequences: `head_of` gets the number of the sequence and that of the head.
// They have the same types and columns, and the heads of a sequence the same sizes. The bits of a
// row of the result depend on nothing but the row, its keys and values, and the number of rows of
// its head.
void Attend(std::int64_t sequences, std::int64_t heads,
            FunctionRef<AttentionHead(std::int64_t, std::int64_t)> head_of);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ATTENTION_H_
