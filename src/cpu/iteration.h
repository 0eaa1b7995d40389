#ifndef INFINI_OPS_CPU_ITERATION_H_
#define INFINI_OPS_CPU_ITERATION_H_

#include <array>
#include <cstdint>
#include <functional>

#include "core/geometry.h"

namespace infini::ops::cpu {

inline constexpr std::size_t kMaxOperands = 3;

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

// Calls `function` for tiles that cover each element of a geometry of two or three operands once,
// on several threads where there is enough to do. Rows are as long as the layouts allow: contiguous
// operands of the same shape are one row, however many dimensions they have and in whatever order.
template <int operands>
void ForEachTile(Geometry<operands>&& geometry, const std::function<void(const Tile&)>& function);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ITERATION_H_
