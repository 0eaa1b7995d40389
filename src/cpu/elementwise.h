#ifndef INFINI_OPS_CPU_ELEMENTWISE_H_
#define INFINI_OPS_CPU_ELEMENTWISE_H_

#include <cstdint>

#include "cpu/elements.h"
#include "cpu/iteration.h"
#include "cpu/row_elements.h"
#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// True for aligned tensors of one type and an `out` of the shape that the others broadcast to,
// which can be written while they are read.
inline bool FitElementwise(const Tensor& input, const Tensor& other, const Tensor& out) {
  if (!input.defined() || !other.defined() || !out.defined()) return false;
  const DataType type = out.data_type();
  return input.data_type() == type && other.data_type() == type && IsAligned(input) &&
         HasBroadcastShape(out, input, other) && IsAligned(other) && IsAligned(out) &&
         IsWritable(out, input) && IsWritable(out, other);
}

// `loop(input, other, out, count)` on contiguous elements of type T, whatever the layouts.
template <typename T, typename Loop>
void Elementwise(const Tensor& input, const Tensor& other, const Tensor& out, const Loop& loop) {
  ForEachTile(out, {&input, &other}, [&](const Tile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      ForEachBlock<T>({tile, row, 0}, {tile, row, 1}, {tile, row, 2}, tile.count, loop);
    }
  });
}

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ELEMENTWISE_H_
