#include "core/concatenation.h"

namespace infini::ops {
namespace {

// True if the shapes differ in at most this dimension.
bool SameBut(std::size_t dimension, const Tensor& a, const Tensor& b) {
  if (a.dimensions() != b.dimensions()) return false;
  for (std::size_t i = 0; i < a.dimensions(); ++i) {
    if (i != dimension && a.shape()[i] != b.shape()[i]) return false;
  }
  return true;
}

}  // namespace

bool IsConcatenation(Span<Tensor> tensors, std::int64_t dim, const Tensor& out) {
  const auto rank = static_cast<std::int64_t>(out.dimensions());
  if (tensors.empty() || dim < -rank || dim >= rank) return false;
  const std::size_t dimension = DimensionOf(dim, out);
  std::int64_t size = 0;
  for (const Tensor& tensor : tensors) {
    if (IsNothing(tensor)) continue;
    if (!SameBut(dimension, tensor, out)) return false;
    size += tensor.shape()[dimension];
  }
  return size == out.shape()[dimension];
}

}  // namespace infini::ops
