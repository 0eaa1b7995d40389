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

// Of each operand, in bytes, 0 where it is broadcast.
using Strides = std::array<std::int64_t, kMaxOperands>;

// Rows of elements of each operand.
struct Tile {
  std::array<char*, kMaxOperands> data;
  Strides strides;  // from an element to the next
  std::int64_t count;
  Strides row_strides;
  std::int64_t rows;
};

// True when `tensor` can be expanded to `shape`.
bool BroadcastsTo(Span<std::int64_t> shape, const Tensor& tensor);

// True when `out` has the shape that the inputs broadcast to. Torch resizes any other.
bool HasBroadcastShape(const Tensor& out, const Tensor& input, const Tensor& other);

// Calls `function` for tiles that cover each element of `out` once, on several threads where there
// is enough to do. The other operands broadcast to `out`. Rows are as long as the layouts allow,
// and contiguous in `out` if anything of it is: contiguous operands of the same shape are one row,
// however many dimensions they have and in whatever order.
void ForEachTile(const Tensor& out, std::initializer_list<const Tensor*> inputs,
                 const std::function<void(const Tile&)>& function);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ITERATION_H_
