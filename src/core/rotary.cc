#include "core/rotary.h"

#include <algorithm>
#include <cstddef>

#include "infini/ops/operator.h"

namespace infini::ops {
namespace {

// `tensor` has the dimensions of `positions`, and then either all heads in one or [heads, size].
bool HasHeads(const Tensor& tensor, const Tensor& positions, std::int64_t size) {
  const std::size_t rank = positions.dimensions();
  const Span<std::int64_t> shape = tensor.shape();
  if (shape.size() != rank + 1 && shape.size() != rank + 2) return false;
  if (!std::equal(positions.shape().begin(), positions.shape().end(), shape.begin())) return false;
  const std::int64_t last = shape[shape.size() - 1];
  return shape.size() == rank + 1 ? last % size == 0 : last == size;
}

// `rank` is that of the positions.
Heads HeadsOf(const Tensor& tensor, std::size_t rank, std::int64_t size, std::int64_t offset) {
  const Span<std::int64_t> shape = tensor.shape();
  const Span<std::int64_t> strides = tensor.strides();
  Heads heads;
  heads.batch_stride = rank == 2 ? strides[0] : 0;
  heads.token_stride = strides[rank - 1];
  heads.element_stride = strides[shape.size() - 1];
  if (shape.size() == rank + 2) {
    heads.count = shape[rank];
    heads.stride = strides[rank];
  } else {
    heads.count = shape[rank] / size;
    heads.stride = size * heads.element_stride;
  }
  heads.data =
      tensor.data<char>() +
      offset * heads.element_stride * static_cast<std::int64_t>(DataTypeSize(tensor.data_type()));
  return heads;
}

}  // namespace

bool RotaryOf(const Invocation& call, Rotary* rotary) {
  const Tensor& positions = call.tensor(0);
  const Tensor& query = call.tensor(1);
  const Tensor* const key =
      call.arguments[2].tag == Argument::Tag::kNone ? nullptr : &call.tensor(2);
  const auto size = call.arguments[3].scalar.To<std::int64_t>();
  const Tensor& cache = call.tensor(4);
  const auto offset = call.arguments[6].scalar.To<std::int64_t>();
  const std::size_t rank = positions.dimensions();
  if ((rank != 1 && rank != 2) || size < 1 || cache.dimensions() != 2) return false;
  const std::int64_t rotated = cache.shape()[1];
  if (rotated % 2 != 0 || offset < 0 || rotated > size || offset > size - rotated) return false;
  if (!HasHeads(query, positions, size) || (key && !HasHeads(*key, positions, size))) return false;
  if (!rotary) return true;
  rotary->batches = rank == 2 ? positions.shape()[0] : 1;
  rotary->tokens = positions.shape()[rank - 1];
  rotary->positions.data = positions.data<char>();
  rotary->positions.batch_stride = rank == 2 ? positions.strides()[0] : 0;
  rotary->positions.token_stride = positions.strides()[rank - 1];
  rotary->query = HeadsOf(query, rank, size, offset);
  if (key) rotary->key = HeadsOf(*key, rank, size, offset);
  rotary->pairs = rotated / 2;
  return true;
}

}  // namespace infini::ops
