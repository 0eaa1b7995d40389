#ifndef INFINI_OPS_BASE_RESHAPE_AND_CACHE_FLASH_H_
#define INFINI_OPS_BASE_RESHAPE_AND_CACHE_FLASH_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// As `ReshapeAndCache`, into caches of the shape [blocks, block_size, heads, head_size].
class ReshapeAndCacheFlash : public OperatorBase<ReshapeAndCacheFlash> {
 public:
  static constexpr char kName[] = "reshape_and_cache_flash";
  static constexpr char kOverloadName[] = "";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "key"},
      {Parameter::Type::kTensor, "value"},
      {Parameter::Type::kTensor, "slot_mapping"},
      Parameter(Parameter::Type::kTensor, "key_cache").InPlace(),
      Parameter(Parameter::Type::kTensor, "value_cache").InPlace(),
  };
  static constexpr Requirements kRequirements = {
      kStoredTypes,
      Typing::kOne,
      Reading::kOften,
      {{Condition::kFlashCache,
        "key and value [tokens, heads, head_size], a slot_mapping of at most as many slots, and "
        "caches [blocks, block_size, heads, head_size]"}},
      Places(2)};

  static void Call(const Tensor& key, const Tensor& value, const Tensor& slot_mapping,
                   const Tensor& key_cache, const Tensor& value_cache,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {key, value, slot_mapping, key_cache, value_cache}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_RESHAPE_AND_CACHE_FLASH_H_
