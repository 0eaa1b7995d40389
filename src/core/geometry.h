#ifndef INFINI_OPS_CORE_GEOMETRY_H_
#define INFINI_OPS_CORE_GEOMETRY_H_

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>

#include "infini/ops/tensor.h"

namespace infini::ops {

// The iteration space of an elementwise loop: the sizes of its dimensions, innermost first, and for
// each operand the step in bytes along each dimension. Operand 0 is the output.
template <int operands>
struct Geometry {
  // Tensors in memory can't have more dimensions of at least two elements.
  static constexpr int kMaxRank = 64;

  int rank = 0;
  std::int64_t sizes[kMaxRank];
  std::int64_t strides[operands][kMaxRank];
  char* data[operands];

  std::int64_t count() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= sizes[i];
    return product;
  }

  // Outside all other dimensions, without steps.
  void AddDimension(std::int64_t size) {
    sizes[rank] = size;
    for (auto& of_operand : strides) of_operand[rank] = 0;
    ++rank;
  }

  void SwapDimensions(int a, int b) {
    std::swap(sizes[a], sizes[b]);
    for (auto& of_operand : strides) std::swap(of_operand[a], of_operand[b]);
  }

  void RemoveDimension(int dimension) {
    --rank;
    for (int i = dimension; i < rank; ++i) {
      sizes[i] = sizes[i + 1];
      for (auto& of_operand : strides) of_operand[i] = of_operand[i + 1];
    }
  }

  // The byte offsets between the operand's elements along the dimension are less than this.
  std::int64_t Reach(int operand, int dimension) const {
    return (sizes[dimension] - 1) * std::abs(strides[operand][dimension]);
  }
};

namespace internal {

// Makes the dimension with the output's smallest step the innermost, and so on, so that tensors of
// one layout are visited in memory order, whatever the order of their dimensions.
template <int operands>
void SortDimensions(Geometry<operands>& geometry) {
  const auto& strides = geometry.strides[0];
  for (int i = 1; i < geometry.rank; ++i) {
    for (int j = i; j > 0 && std::abs(strides[j]) < std::abs(strides[j - 1]); --j) {
      geometry.SwapDimensions(j, j - 1);
    }
  }
}

// True if `dimension` continues the dimension inside it, so that both can be merged.
template <int operands>
bool Continues(const Geometry<operands>& geometry, int dimension) {
  for (const auto& strides : geometry.strides) {
    if (strides[dimension] != strides[dimension - 1] * geometry.sizes[dimension - 1]) return false;
  }
  return true;
}

}  // namespace internal

// The loop over `out` with inputs that broadcast to it, with as few dimensions as possible. All are
// tensors, or have the same members. In place: a geometry takes longer to copy than to make.
template <int kOperands, typename T, typename... Inputs>
void FillGeometry(Geometry<kOperands>& geometry, const T& out, const Inputs&... inputs) {
  const T* tensors[kOperands] = {&out, &inputs...};
  for (int operand = 0; operand < kOperands; ++operand) {
    geometry.data[operand] = tensors[operand]->template data<char>();
  }
  if (out.element_count() == 0) {
    geometry.AddDimension(0);
    return;
  }
  for (std::size_t i = out.dimensions(); i-- > 0;) {
    if (out.shape()[i] == 1) continue;
    geometry.AddDimension(out.shape()[i]);
    for (int operand = 0; operand < kOperands; ++operand) {
      const T& tensor = *tensors[operand];
      const std::size_t missing = out.dimensions() - tensor.dimensions();
      if (i < missing || tensor.shape()[i - missing] == 1) continue;
      geometry.strides[operand][geometry.rank - 1] =
          tensor.strides()[i - missing] *
          static_cast<std::int64_t>(DataTypeSize(tensor.data_type()));
    }
  }
  internal::SortDimensions(geometry);
  for (int i = geometry.rank - 1; i > 0; --i) {
    if (!internal::Continues(geometry, i)) continue;
    geometry.sizes[i - 1] *= geometry.sizes[i];
    geometry.RemoveDimension(i);
  }
}

template <typename... Inputs>
Geometry<1 + sizeof...(Inputs)> MakeGeometry(const Tensor& out, const Inputs&... inputs) {
  Geometry<1 + sizeof...(Inputs)> geometry;
  FillGeometry(geometry, out, inputs...);
  return geometry;
}

namespace internal {

// The dimension to split if a geometry has too many dimensions or too large offsets; -1 if it does
// not need to be split.
template <int operands>
int DimensionToCut(const Geometry<operands>& geometry, int max_rank, std::int64_t max_offset) {
  if (geometry.rank > max_rank) return geometry.rank - 1;
  for (int operand = 0; operand < operands; ++operand) {
    int widest = 0;
    std::int64_t offset = 0;
    for (int i = 0; i < geometry.rank; ++i) {
      offset += geometry.Reach(operand, i);
      if (geometry.Reach(operand, i) > geometry.Reach(operand, widest)) widest = i;
    }
    if (offset >= max_offset) return widest;
  }
  return -1;
}

}  // namespace internal

// Splits the geometry and calls `function` with each part. A part has at most `max_rank`
// dimensions, and its offsets from an operand's address are below `max_offset` bytes.
template <int operands, typename Function>
void ForEachPiece(const Geometry<operands>& geometry, int max_rank, std::int64_t max_offset,
                  const Function& function) {
  const int cut = internal::DimensionToCut(geometry, max_rank, max_offset);
  if (cut < 0) return function(geometry);
  const std::int64_t size = geometry.sizes[cut];
  // Splits in halves; those of a long dimension are multiples of the elements per vector operation.
  const std::int64_t half = size < 64 ? (size + 1) / 2 : (size / 2 + 15) / 16 * 16;
  const std::int64_t length = geometry.rank > max_rank ? 1 : half;
  for (std::int64_t begin = 0; begin < size; begin += length) {
    Geometry<operands> piece = geometry;
    for (int operand = 0; operand < operands; ++operand) {
      piece.data[operand] += begin * geometry.strides[operand][cut];
    }
    piece.sizes[cut] = begin + length < size ? length : size - begin;
    if (piece.sizes[cut] == 1) piece.RemoveDimension(cut);
    ForEachPiece(piece, max_rank, max_offset, function);
  }
}

// The same without a limit for offsets.
template <int operands, typename Function>
void ForEachPiece(const Geometry<operands>& geometry, int max_rank, const Function& function) {
  ForEachPiece(geometry, max_rank, std::numeric_limits<std::int64_t>::max(), function);
}

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_GEOMETRY_H_
