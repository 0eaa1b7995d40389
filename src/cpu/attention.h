#ifndef INFINI_OPS_CPU_ATTENTION_H_
#define INFINI_OPS_CPU_ATTENTION_H_

#include <cstdint>

#include "core/attention.h"
#include "core/function_ref.h"

namespace infini::ops::cpu {

// Computes `count` heads of the same types and sizes; `first` is one of them. The bits of a row of
// the result depend on nothing but the row, its keys and values, and the number of rows of its
// head.
void Attend(const AttentionHead& first, std::int64_t count,
            FunctionRef<AttentionHead(std::int64_t)> head_of);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ATTENTION_H_
