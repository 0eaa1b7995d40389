#ifndef INFINI_OPS_CPU_CACHE_H_
#define INFINI_OPS_CPU_CACHE_H_

#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// As base/reshape_and_cache.h, and as base/reshape_and_cache_flash.h if the key_cache has only four
// dimensions. `name` is the operator's, for the error of a slot beyond the cache.
void ReshapeAndCache(const char* name, const Tensor& key, const Tensor& value,
                     const Tensor& slot_mapping, const Tensor& key_cache,
                     const Tensor& value_cache);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_CACHE_H_
