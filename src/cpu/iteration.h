#ifndef INFINI_OPS_CPU_ITERATION_H_
#define INFINI_OPS_CPU_ITERATION_H_

#include <array>
#include <cstdint>

#include "core/function_ref.h"
#include "core/geometry.h"

namespace infini::ops::cpu {

inline constexpr std::size_t kMaxOperands = 3;

// Strides of each operand, in bytes; 0 if it is broadcast.
using Strides = std::array<std::int64_t, kMaxOperands>;

// Rows of elements of each operand.
struct Tile {
  std::array<char*, kMaxOperands> data;
  Strides strides;  // between elements of a row
  std::int64_t count;
  Strides row_strides;
  std::int64_t rows;
};

// Calls `function` with tiles that together cover each element of a geometry of two or three
// operands once. Uses several threads if there is enough work. Rows are as long as the layouts
// allow: contiguous operands of the same shape form one row, for any number and order of
// dimensions.
template <int operands>
void ForEachTile(Geometry<operands>&& geometry, FunctionRef<void(const Tile&)> function);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ITERATION_H_
