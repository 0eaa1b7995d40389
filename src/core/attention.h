#ifndef INFINI_OPS_CORE_ATTENTION_H_
#define INFINI_OPS_CORE_ATTENTION_H_

#include <cstdint>

#include "core/geometry.h"
#include "core/indices.h"

// The shapes of attention, for every device.
namespace infini::ops {

struct Invocation;

// The steps between heads, rows, columns and pages, in elements.
struct AttentionRows {
  char* data = nullptr;
  std::int64_t head = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t page = 0;  // of keys and values in pages
};

// out = softmax(scale * query @ key^T + bias) @ value, of one head of the keys and values, and of
// all heads of the queries that share it. The bias is the mask or, with slopes, minus the slope of
// the head times the distance of query and key, the last ones of which are at the same place.
struct AttentionHead {
  enum Operand { kOut, kQuery, kKey, kValue, kMask, kLse, kSlopes, kOperands };

  // More than any number of keys. Sums of two do not overflow.
  static constexpr std::int64_t kUnlimited = std::int64_t{1} << 61;

  DataType type;
  DataType mask_type;
  std::int64_t heads = 1;   // of what has a row for each query
  std::int64_t queries;     // rows of `query` and `out`
  std::int64_t keys;        // rows of `key` and `value`
  std::int64_t key_size;    // columns of `query` and `key`
  std::int64_t value_size;  // columns of `value` and `out`
  // Query i sees the keys from i + `begin` on, and before i + `end`.
  std::int64_t begin = -kUnlimited;
  std::int64_t end = kUnlimited;
  double scale;
  double softcap = 0;             // if not 0, the scores are softcap * tanh(scores / softcap)
  AttentionRows rows[kOperands];  // no data: no mask, slopes or sums, whose logarithms are `kLse`
  // If not 0, row i of `key` and `value` is row i % page_size of page number `pages(i /
  // page_size)`.
  std::int64_t page_size = 0;
  Indices pages;
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

// One of the sequences of a call: its queries and keys, from a row of the operands on.
struct AttentionSequence {
  std::int64_t index;
  std::int64_t first_query;
  std::int64_t queries;
  std::int64_t first_key;
  std::int64_t keys;
};

// Attention of sequences of different lengths. What the index tensors contain is not checked.
struct FlashAttention {
  // Of one head of the keys and values.
  AttentionHead At(const AttentionSequence& sequence, std::int64_t head) const;

  std::int64_t sequences;
  std::int64_t key_heads;
  AttentionHead first;  // without the sizes of a sequence
  // From a sequence and from a head of the keys to the next one, in bytes.
  std::int64_t sequence_steps[AttentionHead::kOperands] = {};
  std::int64_t head_steps[AttentionHead::kOperands] = {};
  std::int64_t left;  // how many keys before its own a query sees; negative: all
  std::int64_t right;
  std::int64_t query_rows;  // of all sequences, or of each if there are no `query_ends`
  std::int64_t key_rows;    // the same of the keys; with pages, what those of a sequence can hold
  std::int64_t page_count;  // of the caches
  Indices query_ends;       // cu_seqlens_q
  Indices key_ends;         // cu_seqlens_k
  Indices key_counts;       // seqused_k or cache_seqlens
  Indices pages;            // block_table
};

// The same as `AttentionOf`, of flash_attn_varlen_func and of flash_attn_with_kvcache.
bool VarlenAttentionOf(const Invocation& call, FlashAttention* attention);
bool CachedAttentionOf(const Invocation& call, FlashAttention* attention);

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_ATTENTION_H_
