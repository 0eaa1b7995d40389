#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/cache.h"
#include "cuda/cache.h"
#include "cuda/copy.h"
#include "cuda/indices.h"
#include "cuda/vector.h"
#include "cuda/walk.h"

namespace infini::ops::cuda {
namespace {

// How the tokens are copied into one of the caches. Strides are in bytes.
struct TokenWalk {
  TokenWalk(const CacheCopy& copy, int size)
      : token_stride(copy.token_stride),
        block_stride(copy.block_stride),
        slot_stride(copy.slot_stride) {
    int largest = 16;
    for (const std::int64_t stride : {token_stride, block_stride, slot_stride}) {
      while (stride % largest != 0) largest /= 2;
    }
    unit = UnitOf(copy.token, size, largest);
    walk = Walk<2>(InUnits(copy.token, size, unit), 1);
  }

  Walk<2> walk;
  int unit;  // bytes that are copied at a time
  std::int64_t token_stride;
  std::int64_t block_stride;
  std::int64_t slot_stride;
};

struct Slots {
  Indices mapping;
  std::int64_t tokens;
  std::int64_t block_size;
  std::int64_t end;  // of the slots that the caches have
};

template <typename Unit>
__device__ void CopyToken(const Walk<2>& walk, const char* from, char* to) {
  for (std::uint32_t i = threadIdx.x; i < walk.count; i += blockDim.x) {
    const Place<2> place = walk.Find(i);
    *reinterpret_cast<Unit*>(to + place.offsets[0]) =
        *reinterpret_cast<const Unit*>(from + place.offsets[1]);
  }
}

// One block per token and cache.
__global__ void __launch_bounds__(kBlock)
    CacheKernel(const TokenWalk keys, const TokenWalk values, const Slots slots) {
  const TokenWalk& tokens = blockIdx.y == 0 ? keys : values;
  for (std::int64_t token = blockIdx.x; token < slots.tokens; token += gridDim.x) {
    const std::int64_t slot = slots.mapping.At(0, token);
    if (slot < 0 || slot >= slots.end) continue;
    const std::int64_t block = slot / slots.block_size;
    const char* const from = tokens.walk.data[1] + token * tokens.token_stride;
    char* const to = tokens.walk.data[0] + block * tokens.block_stride +
                     (slot - block * slots.block_size) * tokens.slot_stride;
    switch (tokens.unit) {
      case 16:
        CopyToken<Vector<std::uint64_t, 2>>(tokens.walk, from, to);
        break;
      case 8:
        CopyToken<std::uint64_t>(tokens.walk, from, to);
        break;
      case 4:
        CopyToken<std::uint32_t>(tokens.walk, from, to);
        break;
      case 2:
        CopyToken<std::uint16_t>(tokens.walk, from, to);
        break;
      default:
        CopyToken<std::uint8_t>(tokens.walk, from, to);
    }
  }
}

}  // namespace

void ReshapeAndCache(const Invocation& invocation, const Tensor& key, const Tensor& value,
                     const Tensor& slot_mapping, const Tensor& key_cache,
                     const Tensor& value_cache) {
  const std::int64_t count = slot_mapping.shape()[0];
  if (count == 0 || key.element_count() == 0 || key_cache.element_count() == 0) return;
  const std::size_t dimension = SlotDimension(key_cache);
  const std::int64_t block_size = key_cache.shape()[dimension];
  const Slots slots{Indices(slot_mapping), count, block_size, key_cache.shape()[0] * block_size};
  const auto size = static_cast<int>(DataTypeSize(key_cache.data_type()));
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const dim3 grid(static_cast<unsigned>(std::min(count, most)), 2);
  const DeviceGuard guard(invocation.device);
  Launch(CacheKernel, grid, kBlock, 0, CurrentStream(invocation),
         TokenWalk(CacheCopyOf(key, key_cache, dimension), size),
         TokenWalk(CacheCopyOf(value, value_cache, dimension), size), slots);
}

bool HasNearElements(const Invocation& call) {
  const std::size_t dimension = SlotDimension(call.tensor(3));
  for (std::size_t i = 0; i < 2; ++i) {
    const Geometry<2> token = CacheCopyOf(call.tensor(i), call.tensor(3 + i), dimension).token;
    for (int operand = 0; operand < 2; ++operand) {
      std::int64_t reach = 0;
      for (int k = 0; k < token.rank; ++k) reach += token.Reach(operand, k);
      if (reach >= Walk<2>::kMaxOffset) return false;
    }
  }
  return true;
}

}  // namespace infini::ops::cuda
