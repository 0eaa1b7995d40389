#ifndef INFINI_OPS_CPU_ELEMENTWISE_H_
#define INFINI_OPS_CPU_ELEMENTWISE_H_

#include "cpu/elements.h"
#include "cpu/iteration.h"
#include "cpu/row_elements.h"

namespace infini::ops::cpu {

// Calls `loop(input, other, out, count)` with contiguous elements of type T, for any layout.
template <typename T, typename Loop>
void Elementwise(const Tensor& input, const Tensor& other, const Tensor& out, const Loop& loop) {
  ForEachTile(MakeGeometry(out, input, other), [&](const Tile& tile) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      ForEachBlock<T>({tile, row, 0}, {tile, row, 1}, {tile, row, 2}, tile.count, loop);
    }
  });
}

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ELEMENTWISE_H_
