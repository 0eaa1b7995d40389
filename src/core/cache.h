#ifndef INFINI_OPS_CORE_CACHE_H_
#define INFINI_OPS_CORE_CACHE_H_

#include <array>
#include <cstdint>

#include "core/geometry.h"
#include "infini/ops/tensor.h"

namespace infini::ops {

// How tokens are copied into a cache of base/reshape_and_cache.h or base/reshape_and_cache_flash.h.
// Strides are in bytes.
struct CacheCopy {
  Geometry<2> token;  // the first token, into the first slot
  std::int64_t token_stride;
  std::int64_t block_stride;
  std::int64_t slot_stride;  // within a block
  std::int64_t block_size;
};

// `tokens` is [tokens, heads, head_size]. `slots` is the dimension of the slots of a block in the
// cache; the blocks are dimension 0, and the others are those of a token, whose last one may be
// split in two.
inline CacheCopy CacheCopyOf(const Tensor& tokens, const Tensor& cache, std::size_t slots) {
  std::array<std::int64_t, 3> shape{}, to{};
  std::size_t rank = 0;
  for (std::size_t i = 1; i < cache.dimensions(); ++i) {
    if (i == slots) continue;
    shape[rank] = cache.shape()[i];
    to[rank++] = cache.strides()[i];
  }
  const std::int64_t step = tokens.strides()[2];
  const std::array<std::int64_t, 3> from{tokens.strides()[1], rank == 3 ? shape[2] * step : step,
                                         step};
  const DataType type = cache.data_type();
  const auto size = static_cast<std::int64_t>(DataTypeSize(type));
  return {MakeGeometry(Tensor(cache.data(), {shape.data(), rank}, {to.data(), rank}, type),
                       Tensor(tokens.data(), {shape.data(), rank}, {from.data(), rank}, type)),
          tokens.strides()[0] * size, cache.strides()[0] * size, cache.strides()[slots] * size,
          cache.shape()[slots]};
}

// The dimension of the slots of a block, in the key_cache and in the value_cache.
inline std::size_t SlotDimension(const Tensor& key_cache) {
  const bool is_paged = key_cache.dimensions() == 5;
  return is_paged ? 3 : 1;
}

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_CACHE_H_
