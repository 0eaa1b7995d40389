#ifndef INFINI_OPS_CPU_ITERATION_H_
#define INFINI_OPS_CPU_ITERATION_H_

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>

#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

inline constexpr std::size_t kMaxOperands = 3;
inline constexpr std::size_t kMaxDimensions = 64;  // NumPy's limit, and that of torch's operators

// Elements of each operand, one after the other.
struct Row {
  std::array<char*, kMaxOperands> data;
  std::array<std::int64_t, kMaxOperands> strides;  // in bytes, 0 where broadcast
  std::int64_t count;
};

// True when `tensor` can be expanded to `shape`.
bool BroadcastsTo(Span<std::int64_t> shape, const Tensor& tensor);

// True when `out` has the shape that the inputs broadcast to. Torch resizes any other.
bool HasBroadcastShape(const Tensor& out, const Tensor& input, const Tensor& other);

// Calls `function` for rows that cover each element of `out` once, on several threads where there
// is enough to do. The other operands broadcast to `out`. Rows are as long as the layouts allow,
// and contiguous in `out` if anything of it is: two contiguous operands of the same shape are one
// row per thread, however many dimensions they have and in whatever order.
void ForEachRow(const Tensor& out, std::initializer_list<const Tensor*> inputs,
                const std::function<void(const Row&)>& function);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ITERATION_H_
