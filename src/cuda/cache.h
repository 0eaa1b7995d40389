#ifndef INFINI_OPS_CUDA_CACHE_H_
#define INFINI_OPS_CUDA_CACHE_H_

#include "infini/ops/operator.h"

namespace infini::ops::cuda {

// As base/reshape_and_cache.h, and as base/reshape_and_cache_flash.h if the key_cache has only four
// dimensions.
void ReshapeAndCache(const Invocation& invocation, const Tensor& key, const Tensor& value,
                     const Tensor& slot_mapping, const Tensor& key_cache,
                     const Tensor& value_cache);

// The limit of both.
bool HasNearElements(const Invocation& call);
inline constexpr char kNearLimit[] = "the elements of a token or slot are within 2^31 bytes";

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_CACHE_H_
