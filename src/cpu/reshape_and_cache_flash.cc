#include "base/reshape_and_cache_flash.h"

#include "cpu/cache.h"

namespace infini::ops {

template <>
struct Operator<ReshapeAndCacheFlash, Device::Type::kCpu, 0> {
  static void Run(const Tensor& key, const Tensor& value, const Tensor& slot_mapping,
                  const Tensor& key_cache, const Tensor& value_cache) {
    cpu::ReshapeAndCache(ReshapeAndCacheFlash::kName, key, value, slot_mapping, key_cache,
                         value_cache);
  }
};

INFINI_OPS_REGISTER(ReshapeAndCacheFlash, Device::Type::kCpu, 0);

}  // namespace infini::ops
