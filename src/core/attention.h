#ifndef INFINI_OPS_CORE_ATTENTION_H_
#define INFINI_OPS_CORE_ATTENTION_H_

#include <cstdint>

#include "core/geometry.h"

// The shapes of attention, for every device.
namespace infini::ops {

struct Invocation;

// The steps between heads, rows and columns, in elements.
struct AttentionRows {
  char* data = nullptr;
  std::int64_t head = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

// out = softmax(scale * query @ key^T + mask) @ value, of one head of the keys and values, and of
// all heads of the queries that share it.
struct AttentionHead {
  enum Operand { kOut, kQuery, kKey, kValue, kMask, kOperands };

  DataType type;
  DataType mask_type;
  std::int64_t heads = 1;   // of `query`, `out` and the mask
  std::int64_t queries;     // rows of `query` and `out`
  std::int64_t keys;        // rows of `key` and `value`
  std::int64_t key_size;    // columns of `query` and `key`
  std::int64_t value_size;  // columns of `value` and `out`
  // Query i sees the keys before i + `shift`, or all if it is not causal.
  bool is_causal;
  std::int64_t shift;
  double scale;
  AttentionRows rows[kOperands];  // those of the mask have no data if there is none
};

struct Attention {
  // The head with this number.
  AttentionHead At(std::int64_t index) const;

  AttentionHead first;
  Geometry<AttentionHead::kOperands> batch;
};

// Returns true if the shapes of a call of scaled_dot_product_attention match and its dropout is 0,
// and then writes `attention` if it is not null.
bool AttentionOf(const Invocation& call, Attention* attention);

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_ATTENTION_H_
