#ifndef INFINI_OPS_CORE_ROTARY_H_
#define INFINI_OPS_CORE_ROTARY_H_

#include <cstdint>

// The shared part of rotary_embedding, for every device.
namespace infini::ops {

struct Invocation;

// Where the heads of each token are. Strides are in elements.
struct Heads {
  char* data = nullptr;
  std::int64_t count = 0;  // of a token
  std::int64_t batch_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t stride = 0;
  std::int64_t element_stride = 1;
};

struct Rotary {
  std::int64_t batches = 1;
  std::int64_t tokens = 0;  // of a batch
  Heads positions;          // one head of one element
  Heads query;              // from the first rotated element on, as the key
  Heads key;                // without heads: no key
  std::int64_t pairs = 0;   // of a head
};

// Returns true if the shapes of the call match, and then writes `rotary` if it is not null.
bool RotaryOf(const Invocation& call, Rotary* rotary);

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_ROTARY_H_
