#ifndef INFINI_OPS_BASE_RESHAPE_AND_CACHE_H_
#define INFINI_OPS_BASE_RESHAPE_AND_CACHE_H_

#include "infini/ops/operator.h"

namespace infini::ops {

// Copies the key and the value of each token into a slot of a paged cache: of token i, into slot
// slot_mapping[i], which is slot_mapping[i] % block_size of block slot_mapping[i] / block_size. A
// token with a negative slot is skipped, and so are those beyond `slot_mapping`. The other slots
// keep their values.
//
// Shapes: key and value [tokens, heads, head_size], key_cache [blocks, heads, head_size / x,
// block_size, x] and value_cache [blocks, heads, head_size, block_size].
//
// If two tokens have the same slot, on the CPU the last one is kept. On other devices it is either,
// or parts of both. A slot beyond the cache is an error on the CPU, before anything is written. On
// other devices, where the host does not know the slots, its token is skipped.
class ReshapeAndCache : public OperatorBase<ReshapeAndCache> {
 public:
  static constexpr char kName[] = "reshape_and_cache";
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
      {{Condition::kPagedCache,
        "key and value [tokens, heads, head_size], a slot_mapping of at most as many slots, a "
        "key_cache [blocks, heads, head_size / x, block_size, x], and a value_cache [blocks, "
        "heads, head_size, block_size]"}},
      Places(2)};

  static void Call(const Tensor& key, const Tensor& value, const Tensor& slot_mapping,
                   const Tensor& key_cache, const Tensor& value_cache,
                   const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, kOverloadName);
    Dispatch(overload, {key, value, slot_mapping, key_cache, value_cache}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_RESHAPE_AND_CACHE_H_
