#ifndef INFINI_OPS_TRITON_CACHE_H_
#define INFINI_OPS_TRITON_CACHE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/cache.h"
#include "triton/launch.h"
#include "triton/operands.h"

// The glue code of operators that copy tokens into the slots of caches.
namespace infini::ops::triton {

inline constexpr DataTypes kCachedTypes{
    kSmallFloatTypes.bits | DataTypes::Bits(DataType::kUInt8, DataType::kInt8, DataType::kInt16,
                                            DataType::kInt32, DataType::kBool),
    "type (float16, bfloat16, float32, bool, uint8, int8, int16 or int32)"};

// The elements of a token and the slots of a cache are counted with 32 bits.
inline bool HasCountableTokens(const Invocation& call) {
  if (!IsCountable(call)) return false;
  const Span<std::int64_t> key = call.tensor(0).shape();
  const Tensor& cache = call.tensor(3);
  const std::int64_t slots = cache.shape()[0] * cache.shape()[SlotDimension(cache)];
  return std::max(key[1] * key[2], slots) <= std::int64_t{1} << 30;
}
inline constexpr char kTokenLimit[] =
    "no dimension or token of more than 2^30 elements, and at most as many slots";

template <typename Request>
Request MakeCacheRequest(const CacheCopy& copy, DataType type, const Tensor& slots,
                         std::int64_t blocks) {
  const auto size = static_cast<std::int64_t>(DataTypeSize(type));
  Request request{};
  request.data_type = static_cast<int>(type);
  request.cache = copy.token.data[0];
  request.tokens = copy.token.data[1];
  request.slots = slots.data();
  request.count = copy.token.count();
  request.size0 = SizeOf(copy.token, 0);
  request.size1 = SizeOf(copy.token, 1);
  request.slots_size = static_cast<std::int64_t>(DataTypeSize(slots.data_type()));
  request.block_size = copy.block_size;
  request.slot_count = blocks * copy.block_size;
  request.token_count = slots.shape()[0];
  request.slots_stride = slots.strides()[0];
  request.tokens_token = copy.token_stride / size;
  request.tokens_stride0 = StrideOf(copy.token, 1, 0, type);
  request.tokens_stride1 = StrideOf(copy.token, 1, 1, type);
  request.tokens_stride2 = StrideOf(copy.token, 1, 2, type);
  request.cache_block = copy.block_stride / size;
  request.cache_slot = copy.slot_stride / size;
  request.cache_stride0 = StrideOf(copy.token, 0, 0, type);
  request.cache_stride1 = StrideOf(copy.token, 0, 1, type);
  request.cache_stride2 = StrideOf(copy.token, 0, 2, type);
  return request;
}

// As base/reshape_and_cache.h, and as base/reshape_and_cache_flash.h if the key_cache has only four
// dimensions.
template <typename Request>
void ReshapeAndCache(const char* name,
                     InfiniOpsTritonStatus (*dispatcher)(const Request*, InfiniOpsTritonCall*),
                     const Invocation& invocation, const Tensor& key, const Tensor& value,
                     const Tensor& slot_mapping, const Tensor& key_cache,
                     const Tensor& value_cache) {
  if (slot_mapping.element_count() == 0 || key_cache.element_count() == 0) return;
  const std::size_t dimension = SlotDimension(key_cache);
  const auto copy = [&](const Tensor& tokens, const Tensor& cache) {
    Launch(name, dispatcher,
           MakeCacheRequest<Request>(CacheCopyOf(tokens, cache, dimension), cache.data_type(),
                                     slot_mapping, cache.shape()[0]),
           invocation);
  };
  copy(key, key_cache);
  copy(value, value_cache);
}

}  // namespace infini::ops::triton

#endif  // INFINI_OPS_TRITON_CACHE_H_
