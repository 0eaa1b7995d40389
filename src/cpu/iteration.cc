#include "cpu/iteration.h"

#include <algorithm>
#include <cstdlib>

#include "cpu/parallel.h"

namespace infini::ops::cpu {
namespace {

// So many elements are worth another thread: a few microseconds.
constexpr std::int64_t kGrain = 16384;

// A row costs a few nanoseconds beside its elements. Where the innermost dimension is not longer
// than this, the longest one is taken in its place.
constexpr std::int64_t kShortRow = 3;

struct Dimension {
  std::int64_t size;
  Strides strides;
};

// The tensor's extent in a dimension of a shape of `rank` dimensions that it broadcasts to.
std::int64_t ExtentIn(std::size_t rank, std::size_t dimension, const Tensor& tensor) {
  const std::size_t missing = rank - tensor.dimensions();
  return dimension < missing ? 1 : tensor.shape()[dimension - missing];
}

// The same for its stride, in bytes; 0 where it repeats.
std::int64_t StrideIn(std::size_t rank, std::size_t dimension, const Tensor& tensor) {
  if (ExtentIn(rank, dimension, tensor) == 1) return 0;
  return tensor.strides()[dimension - (rank - tensor.dimensions())] *
         static_cast<std::int64_t>(DataTypeSize(tensor.data_type()));
}

// Nested loops over all operands, outermost first.
class Loops {
 public:
  Loops(const Tensor& out, std::initializer_list<const Tensor*> inputs) {
    operands_[count_++] = &out;
    for (const Tensor* input : inputs) operands_[count_++] = input;
    for (std::size_t i = 0; i < out.dimensions(); ++i) {
      if (out.shape()[i] != 1) Insert(DimensionAt(i));
    }
    Collapse();
    if (rank_ == 0) dimensions_[rank_++] = {1, {}};
    if (inner().size <= kShortRow) std::swap(dimensions_[rank_ - 1], *Longest());
  }

  std::int64_t element_count() const {
    std::int64_t count = 1;
    for (std::size_t i = 0; i < rank_; ++i) count *= dimensions_[i].size;
    return count;
  }

  // The elements [begin, end), counted in the order of the loops.
  void Walk(std::int64_t begin, std::int64_t end,
            const std::function<void(const Tile&)>& function) const {
    std::array<std::int64_t, kMaxDimensions> index;
    Tile tile = TileAt(begin, &index);
    while (true) {
      Extend(index, end - begin, &tile);
      function(tile);
      begin += tile.count * tile.rows;
      if (begin == end) return;
      Advance(&index, &tile);
    }
  }

 private:
  const Dimension& inner() const { return dimensions_[rank_ - 1]; }

  Dimension DimensionAt(std::size_t i) const {
    Dimension dimension{operands_[0]->shape()[i], {}};
    for (std::size_t k = 0; k < count_; ++k) {
      dimension.strides[k] = StrideIn(operands_[0]->dimensions(), i, *operands_[k]);
    }
    return dimension;
  }

  // By descending stride, of `out` first: the innermost loop is to move the least.
  void Insert(const Dimension& dimension) {
    std::size_t place = rank_++;
    for (; place > 0 && IsInside(dimensions_[place - 1], dimension); --place) {
      dimensions_[place] = dimensions_[place - 1];
    }
    dimensions_[place] = dimension;
  }

  bool IsInside(const Dimension& a, const Dimension& b) const {
    for (std::size_t k = 0; k < count_; ++k) {
      const std::int64_t x = std::abs(a.strides[k]);
      const std::int64_t y = std::abs(b.strides[k]);
      if (x != y) return x < y;
    }
    return false;
  }

  // Makes one of two that continue each other in every operand.
  void Collapse() {
    std::size_t last = 0;
    for (std::size_t i = 1; i < rank_; ++i) {
      const Dimension& next = dimensions_[i];
      if (Continues(dimensions_[last], next)) {
        dimensions_[last] = {dimensions_[last].size * next.size, next.strides};
      } else {
        dimensions_[++last] = next;
      }
    }
    rank_ = std::min(rank_, last + 1);
  }

  bool Continues(const Dimension& outer, const Dimension& inner) const {
    for (std::size_t k = 0; k < count_; ++k) {
      if (outer.strides[k] != inner.size * inner.strides[k]) return false;
    }
    return true;
  }

  Dimension* Longest() {
    return std::max_element(&dimensions_[0], &dimensions_[rank_],
                            [](const Dimension& a, const Dimension& b) { return a.size < b.size; });
  }

  Tile TileAt(std::int64_t element, std::array<std::int64_t, kMaxDimensions>* index) const {
    Tile tile{};
    for (std::size_t k = 0; k < count_; ++k) tile.data[k] = operands_[k]->data<char>();
    tile.strides = inner().strides;
    if (rank_ > 1) tile.row_strides = dimensions_[rank_ - 2].strides;
    for (std::size_t i = rank_; i-- > 0; element /= dimensions_[i].size) {
      (*index)[i] = element % dimensions_[i].size;
      Move((*index)[i], dimensions_[i], &tile);
    }
    return tile;
  }

  // Whole rows, as many as there are, or a part of one; `left` elements at most.
  void Extend(const std::array<std::int64_t, kMaxDimensions>& index, std::int64_t left,
              Tile* tile) const {
    const std::int64_t first = index[rank_ - 1];
    tile->count = std::min(inner().size - first, left);
    tile->rows = 1;
    if (rank_ > 1 && tile->count == inner().size) {
      tile->rows = std::min(dimensions_[rank_ - 2].size - index[rank_ - 2], left / tile->count);
    }
  }

  // To the element after a tile.
  void Advance(std::array<std::int64_t, kMaxDimensions>* index, Tile* tile) const {
    const bool has_rows = tile->rows > 1;
    std::size_t i = rank_ - (has_rows ? 2 : 1);
    for (std::int64_t steps = has_rows ? tile->rows : tile->count;; steps = 1, --i) {
      (*index)[i] += steps;
      Move(steps, dimensions_[i], tile);
      if ((*index)[i] < dimensions_[i].size) return;
      Move(-(*index)[i], dimensions_[i], tile);
      (*index)[i] = 0;
    }
  }

  void Move(std::int64_t steps, const Dimension& dimension, Tile* tile) const {
    for (std::size_t k = 0; k < count_; ++k) tile->data[k] += steps * dimension.strides[k];
  }

  std::array<const Tensor*, kMaxOperands> operands_;
  std::size_t count_ = 0;
  std::array<Dimension, kMaxDimensions> dimensions_;
  std::size_t rank_ = 0;
};

}  // namespace

bool BroadcastsTo(Span<std::int64_t> shape, const Tensor& tensor) {
  if (tensor.dimensions() > shape.size() || shape.size() > kMaxDimensions) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::int64_t extent = ExtentIn(shape.size(), i, tensor);
    if (extent != 1 && extent != shape[i]) return false;
  }
  return true;
}

bool HasBroadcastShape(const Tensor& out, const Tensor& input, const Tensor& other) {
  const std::size_t rank = std::max(input.dimensions(), other.dimensions());
  if (out.dimensions() != rank || rank > kMaxDimensions) return false;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t a = ExtentIn(rank, i, input);
    const std::int64_t b = ExtentIn(rank, i, other);
    if ((a != b && a != 1 && b != 1) || out.shape()[i] != (a == 1 ? b : a)) return false;
  }
  return true;
}

void ForEachTile(const Tensor& out, std::initializer_list<const Tensor*> inputs,
                 const std::function<void(const Tile&)>& function) {
  const Loops loops(out, inputs);
  ParallelFor(loops.element_count(), kGrain,
              [&](std::int64_t begin, std::int64_t end) { loops.Walk(begin, end, function); });
}

}  // namespace infini::ops::cpu
