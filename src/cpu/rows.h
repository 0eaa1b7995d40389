#ifndef INFINI_OPS_CPU_ROWS_H_
#define INFINI_OPS_CPU_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/function_ref.h"
#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// A loop over one row of contiguous elements of each tensor. `scratch` is memory that no other
// thread uses.
using RowLoop = FunctionRef<void(std::int64_t row, const void* const* inputs, void* const* outs,
                                 void* scratch)>;

// Calls `loop` for each row (the elements along the last dimension) of tensors that have as many
// rows, whatever their layouts and types; `kMostRows` inputs and as many outs at most. Uses several
// threads if there is enough work for the rows of the first out. If the loop is memory-bound, large
// outs are stored past the caches.
inline constexpr std::size_t kMostRows = 3;
void ForEachRow(std::initializer_list<const Tensor*> inputs,
                std::initializer_list<const Tensor*> outs, std::int64_t scratch_bytes, RowLoop loop,
                bool is_memory_bound = false);

// The elements of a vector: in place if they are contiguous, otherwise copied into `buffer`.
const void* Gather(const Tensor& vector, std::vector<char>* buffer);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ROWS_H_
