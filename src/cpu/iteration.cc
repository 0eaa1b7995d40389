#include "cpu/iteration.h"

#include <algorithm>

#include "cpu/parallel.h"

namespace infini::ops::cpu {
namespace {

// A row costs a few nanoseconds in addition to its elements. If the innermost dimension is at most
// this long, the longest dimension becomes the innermost.
constexpr std::int64_t kShortRow = 3;

// Nested loops over all operands; dimension 0 is the innermost.
template <int operands>
class Loops {
 public:
  // At least one loop. If the inner loop would be short, the longest loop becomes the inner one.
  explicit Loops(Geometry<operands>& geometry) : geometry_(geometry) {
    if (geometry.rank == 0) geometry.AddDimension(1);
    const std::int64_t* const sizes = geometry.sizes;
    if (sizes[0] > kShortRow) return;
    geometry.SwapDimensions(
        0, static_cast<int>(std::max_element(sizes, sizes + geometry.rank) - sizes));
  }

  void WalkInParallel(FunctionRef<void(const Tile&)> function) const {
    ParallelFor(geometry_.count(), kElementsPerThread,
                [&](std::int64_t begin, std::int64_t end) { Walk(begin, end, function); });
  }

 private:
  using Index = std::array<std::int64_t, Geometry<operands>::kMaxRank>;

  // Visits the elements [begin, end), counted in the order of the loops.
  void Walk(std::int64_t begin, std::int64_t end, FunctionRef<void(const Tile&)> function) const {
    Index index;
    Tile tile = TileAt(begin, &index);
    while (true) {
      Extend(index, end - begin, &tile);
      function(tile);
      begin += tile.count * tile.rows;
      if (begin == end) return;
      Advance(&index, &tile);
    }
  }

  Tile TileAt(std::int64_t element, Index* index) const {
    Tile tile{};
    for (int k = 0; k < operands; ++k) {
      tile.data[k] = geometry_.data[k];
      tile.strides[k] = geometry_.strides[k][0];
      if (geometry_.rank > 1) tile.row_strides[k] = geometry_.strides[k][1];
    }
    for (int i = 0; i < geometry_.rank; ++i) {
      (*index)[i] = element % geometry_.sizes[i];
      Move((*index)[i], i, &tile);
      element /= geometry_.sizes[i];
    }
    return tile;
  }

  // Extends the tile to as many whole rows as possible, or a part of one, at most `left` elements.
  void Extend(const Index& index, std::int64_t left, Tile* tile) const {
    const std::int64_t* const sizes = geometry_.sizes;
    tile->count = std::min(sizes[0] - index[0], left);
    tile->rows = 1;
    if (geometry_.rank > 1 && tile->count == sizes[0]) {
      tile->rows = std::min(sizes[1] - index[1], left / tile->count);
    }
  }

  // Advances to the element after a tile.
  void Advance(Index* index, Tile* tile) const {
    const bool has_rows = tile->rows > 1;
    int i = has_rows ? 1 : 0;
    for (std::int64_t steps = has_rows ? tile->rows : tile->count;; steps = 1, ++i) {
      (*index)[i] += steps;
      Move(steps, i, tile);
      if ((*index)[i] < geometry_.sizes[i]) return;
      Move(-(*index)[i], i, tile);
      (*index)[i] = 0;
    }
  }

  void Move(std::int64_t steps, int dimension, Tile* tile) const {
    for (int k = 0; k < operands; ++k) {
      tile->data[k] += steps * geometry_.strides[k][dimension];
    }
  }

  const Geometry<operands>& geometry_;
};

}  // namespace

template <int operands>
void ForEachTile(Geometry<operands>&& geometry, FunctionRef<void(const Tile&)> function) {
  Loops<operands>(geometry).WalkInParallel(function);
}

template void ForEachTile(Geometry<2>&& geometry, FunctionRef<void(const Tile&)> function);
template void ForEachTile(Geometry<3>&& geometry, FunctionRef<void(const Tile&)> function);

}  // namespace infini::ops::cpu
