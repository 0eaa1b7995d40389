#include "core/attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include "core/requirements.h"
#include "infini/ops/operator.h"

namespace infini::ops {
namespace {

// The parameters of scaled_dot_product_attention.
enum AttentionParameter { kQuery, kKey, kValue, kMask, kDropout, kIsCausal, kScale, kEnableGqa };

// The shape without the last `count` dimensions.
Span<std::int64_t> Leading(const Tensor& tensor, std::size_t count) {
  return {tensor.shape().data(), tensor.dimensions() - count};
}

// The size or the stride of a dimension, counted from the last one.
std::int64_t FromLast(Span<std::int64_t> sizes, std::size_t place) {
  return sizes[sizes.size() - 1 - place];
}

// The step along a dimension that is counted from the last one; 0 if the operand repeats.
std::int64_t Step(const Tensor& tensor, std::size_t place) {
  if (place >= tensor.dimensions() || FromLast(tensor.shape(), place) == 1) return 0;
  return FromLast(tensor.strides(), place);
}

// True if the heads of `key` and `value` divide those of `query`, or the leading dimensions
// broadcast.
bool HaveHeads(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& out,
               bool is_grouped) {
  const std::size_t own = is_grouped ? 3 : 2;
  for (const Tensor* const each : {&query, &key, &value, &out}) {
    if (each->dimensions() < own) return false;
  }
  if (is_grouped) {
    const std::int64_t heads = FromLast(key.shape(), 2);
    if (heads == 0 || FromLast(value.shape(), 2) != heads ||
        FromLast(query.shape(), 2) % heads != 0 ||
        FromLast(out.shape(), 2) != FromLast(query.shape(), 2)) {
      return false;
    }
  }
  return IsBroadcastOf(Leading(out, own),
                       {Leading(query, own), Leading(key, own), Leading(value, own)});
}

bool IsMask(const Tensor& mask, const Tensor& out, std::int64_t keys) {
  std::vector<std::int64_t> shape(out.shape().begin(), out.shape().end());
  shape.back() = keys;
  return BroadcastsTo(mask.shape(), shape);
}

// Calls `function` with each operand and its tensor.
template <typename Function>
void ForEachOperand(const Invocation& call, const Function& function) {
  function(AttentionHead::kOut, call.out());
  function(AttentionHead::kQuery, call.tensor(kQuery));
  function(AttentionHead::kKey, call.tensor(kKey));
  function(AttentionHead::kValue, call.tensor(kValue));
  if (call.arguments[kMask].tag != Argument::Tag::kNone) {
    function(AttentionHead::kMask, call.tensor(kMask));
  }
}

bool IsShared(AttentionHead::Operand operand) {
  return operand == AttentionHead::kKey || operand == AttentionHead::kValue;
}

void FillBatch(const Invocation& call, bool is_grouped, Attention* attention) {
  ForEachOperand(call, [&](AttentionHead::Operand operand, const Tensor& tensor) {
    const bool has_heads = is_grouped && !IsShared(operand);
    attention->first.rows[operand] = {tensor.data<char>(), has_heads ? Step(tensor, 2) : 0,
                                      Step(tensor, 1), Step(tensor, 0)};
  });
  auto& batch = attention->batch;
  for (std::size_t place = 2; place < call.out().dimensions(); ++place) {
    const std::int64_t heads = is_grouped && place == 2 ? attention->first.heads : 1;
    const std::int64_t size = FromLast(call.out().shape(), place) / heads;
    if (size == 1) continue;
    batch.AddDimension(size);
    ForEachOperand(call, [&](AttentionHead::Operand operand, const Tensor& tensor) {
      batch.strides[operand][batch.rank - 1] =
          Step(tensor, place) * (IsShared(operand) ? 1 : heads) *
          static_cast<std::int64_t>(DataTypeSize(tensor.data_type()));
    });
  }
}

// The parameters of flash_attn_varlen_func and of flash_attn_with_kvcache, from `first` on.
struct FlashParameters {
  std::size_t block_table;
  std::size_t scale = block_table + 1;
  std::size_t is_causal = block_table + 2;
  std::size_t left = block_table + 3;
  std::size_t right = block_table + 4;
  std::size_t softcap = block_table + 5;
  std::size_t slopes = block_table + 6;
  std::size_t out = block_table + 7;
  std::size_t lse = block_table + 8;
};
// The other index tensors.
enum FlashIndices { kQueryEnds = 3, kKeyEnds = 4, kVarlenKeyCounts = 7, kCachedKeyCounts = 3 };
constexpr FlashParameters kVarlen{8};
constexpr FlashParameters kCached{4};

const Tensor* Given(const Invocation& call, std::size_t place) {
  return call.arguments[place].tag == Argument::Tag::kNone ? nullptr : &call.tensor(place);
}

bool HasShape(const Tensor* tensor, std::initializer_list<std::int64_t> shape) {
  return !tensor ||
         std::equal(tensor->shape().begin(), tensor->shape().end(), shape.begin(), shape.end());
}

// The shape of a tensor whose dimensions before the heads are not looked at.
struct HeadShape {
  explicit HeadShape(const Tensor& tensor)
      : heads(FromLast(tensor.shape(), 1)), size(FromLast(tensor.shape(), 0)) {}
  std::int64_t heads;
  std::int64_t size;
};

// What both operators share: all but the index tensors of the sequences. `rank` is that of `q`, and
// also of `k` and `v` without pages.
bool FlashOf(const Invocation& call, const FlashParameters& places, std::size_t rank,
             std::int64_t sequences, FlashAttention* flash) {
  const Tensor& query = call.tensor(kQuery);
  const Tensor& key = call.tensor(kKey);
  const Tensor& value = call.tensor(kValue);
  const Tensor& out = call.tensor(places.out);
  const Tensor* const table = Given(call, places.block_table);
  const Tensor* const slopes = Given(call, places.slopes);
  const Tensor* const lse = Given(call, places.lse);
  const std::size_t key_rank = table ? 4 : rank;
  if (query.dimensions() != rank || out.dimensions() != rank || key.dimensions() != key_rank ||
      value.dimensions() != key_rank) {
    return false;
  }
  const HeadShape queries(query);
  const HeadShape keys(key);
  const HeadShape values(value);
  if (keys.heads == 0 || queries.heads % keys.heads != 0 || values.heads != keys.heads ||
      queries.size != keys.size || HeadShape(out).heads != queries.heads ||
      HeadShape(out).size != values.size ||
      !std::equal(Leading(out, 2).begin(), Leading(out, 2).end(), Leading(query, 2).begin()) ||
      !std::equal(Leading(key, 2).begin(), Leading(key, 2).end(), Leading(value, 2).begin())) {
    return false;
  }
  if (table &&
      (table->dimensions() != 2 || table->shape()[0] != sequences || key.shape()[1] == 0)) {
    return false;
  }
  for (const Tensor* const each : {slopes, lse}) {
    if (each && each->data_type() != DataType::kFloat32) return false;
  }
  if (!HasShape(slopes, {queries.heads}) && !HasShape(slopes, {sequences, queries.heads})) {
    return false;
  }
  const bool has_ends = rank == 3;
  if (has_ends ? !HasShape(lse, {queries.heads, query.shape()[0]})
               : !HasShape(lse, {sequences, queries.heads, query.shape()[1]})) {
    return false;
  }
  const auto softcap = call.arguments[places.softcap].scalar.To<double>();
  if (!(softcap >= 0)) return false;
  if (!flash) return true;
  flash->sequences = sequences;
  flash->key_heads = keys.heads;
  AttentionHead& head = flash->first;
  head.type = out.data_type();
  head.heads = queries.heads / keys.heads;
  head.key_size = keys.size;
  head.value_size = values.size;
  const Argument& scale = call.arguments[places.scale];
  head.scale = scale.tag == Argument::Tag::kNone ? 1 / std::sqrt(static_cast<double>(keys.size))
                                                 : scale.scalar.To<double>();
  head.softcap = softcap;
  const auto window = [&](std::size_t place) {
    return std::min(call.arguments[place].scalar.To<std::int64_t>(), AttentionHead::kUnlimited);
  };
  const bool is_causal = call.arguments[places.is_causal].scalar.To<bool>();
  flash->left = window(places.left);
  flash->right = is_causal ? 0 : window(places.right);
  flash->query_rows = query.shape()[rank - 3];
  if (table) {
    head.page_size = key.shape()[1];
    flash->page_count = key.shape()[0];
    flash->key_rows = table->shape()[1] * head.page_size;
    flash->pages = Indices(*table);
  } else {
    flash->key_rows = key.shape()[rank - 3];
  }
  const auto add = [&](AttentionHead::Operand operand, const Tensor& tensor, std::size_t heads,
                       const AttentionRows& rows, std::int64_t sequence) {
    const auto size = static_cast<std::int64_t>(DataTypeSize(tensor.data_type()));
    head.rows[operand] = rows;
    flash->sequence_steps[operand] = sequence * size;
    flash->head_steps[operand] =
        FromLast(tensor.strides(), heads) * (IsShared(operand) ? 1 : head.heads) * size;
  };
  const auto add_rows = [&](AttentionHead::Operand operand, const Tensor& tensor) {
    const Span<std::int64_t> strides = tensor.strides();
    const bool is_paged = table && IsShared(operand);
    const bool has_sequences = !has_ends && !is_paged;
    add(operand, tensor, 1,
        {tensor.data<char>(), FromLast(strides, 1), FromLast(strides, 2), FromLast(strides, 0),
         is_paged ? strides[0] : 0},
        has_sequences ? strides[0] : 0);
  };
  add_rows(AttentionHead::kOut, out);
  add_rows(AttentionHead::kQuery, query);
  add_rows(AttentionHead::kKey, key);
  add_rows(AttentionHead::kValue, value);
  if (lse) {
    const Span<std::int64_t> strides = lse->strides();
    add(AttentionHead::kLse, *lse, 1,
        {lse->data<char>(), FromLast(strides, 1), FromLast(strides, 0)}, has_ends ? 0 : strides[0]);
  }
  if (slopes) {
    const Span<std::int64_t> strides = slopes->strides();
    add(AttentionHead::kSlopes, *slopes, 0, {slopes->data<char>(), FromLast(strides, 0)},
        strides.size() > 1 ? strides[0] : 0);
  }
  return true;
}

}  // namespace

AttentionHead FlashAttention::At(const AttentionSequence& sequence, std::int64_t index) const {
  AttentionHead head = first;
  head.queries = sequence.queries;
  head.keys = sequence.keys;
  const std::int64_t own = sequence.keys - sequence.queries;
  if (left >= 0) head.begin = own - left;
  if (right >= 0) head.end = own + right + 1;
  for (int operand = 0; operand < AttentionHead::kOperands; ++operand) {
    AttentionRows& rows = head.rows[operand];
    if (!rows.data) continue;
    const bool is_shared = IsShared(static_cast<AttentionHead::Operand>(operand));
    const bool is_float32 = operand == AttentionHead::kLse || operand == AttentionHead::kSlopes;
    const auto size =
        static_cast<std::int64_t>(DataTypeSize(is_float32 ? DataType::kFloat32 : head.type));
    rows.data += sequence.index * sequence_steps[operand] + index * head_steps[operand] +
                 (is_shared ? sequence.first_key : sequence.first_query) * rows.row * size;
  }
  if (head.page_size != 0) head.pages = pages.Row(sequence.index);
  return head;
}

bool VarlenAttentionOf(const Invocation& call, FlashAttention* flash) {
  const Tensor& query_ends = call.tensor(kQueryEnds);
  const Tensor* const key_ends = Given(call, kKeyEnds);
  const Tensor* const key_counts = Given(call, kVarlenKeyCounts);
  if (query_ends.dimensions() != 1 || query_ends.shape()[0] == 0) return false;
  const std::int64_t sequences = query_ends.shape()[0] - 1;
  const bool is_paged = Given(call, kVarlen.block_table);
  if (!HasShape(key_ends, {sequences + 1}) || !HasShape(key_counts, {sequences}) ||
      (!key_ends && !(is_paged && key_counts)) || !FlashOf(call, kVarlen, 3, sequences, flash)) {
    return false;
  }
  if (!flash) return true;
  flash->query_ends = Indices(query_ends);
  if (key_ends) flash->key_ends = Indices(*key_ends);
  if (key_counts) flash->key_counts = Indices(*key_counts);
  return true;
}

bool CachedAttentionOf(const Invocation& call, FlashAttention* flash) {
  const Tensor& query = call.tensor(kQuery);
  const Tensor& key_counts = call.tensor(kCachedKeyCounts);
  if (query.dimensions() != 4) return false;
  const std::int64_t sequences = query.shape()[0];
  const bool is_paged = Given(call, kCached.block_table);
  if (!HasShape(&key_counts, {sequences}) || !FlashOf(call, kCached, 4, sequences, flash) ||
      (!is_paged && call.tensor(kKey).shape()[0] != sequences)) {
    return false;
  }
  if (flash) flash->key_counts = Indices(key_counts);
  return true;
}

AttentionHead Attention::At(std::int64_t index) const {
  AttentionHead head = first;
  for (int i = 0; i < batch.rank; index /= batch.sizes[i++]) {
    const std::int64_t place = index % batch.sizes[i];
    for (int operand = 0; operand < AttentionHead::kOperands; ++operand) {
      AttentionRows& rows = head.rows[operand];
      if (rows.data) rows.data += place * batch.strides[operand][i];
    }
  }
  return head;
}

bool AttentionOf(const Invocation& call, Attention* attention) {
  const Tensor& query = call.tensor(kQuery);
  const Tensor& key = call.tensor(kKey);
  const Tensor& value = call.tensor(kValue);
  const Tensor& out = call.out();
  const bool is_grouped = call.arguments[kEnableGqa].scalar.To<bool>();
  if (!HaveHeads(query, key, value, out, is_grouped)) return false;
  const std::int64_t keys = FromLast(key.shape(), 1);
  const std::int64_t key_size = FromLast(key.shape(), 0);
  if (FromLast(query.shape(), 0) != key_size || FromLast(value.shape(), 1) != keys ||
      FromLast(out.shape(), 1) != FromLast(query.shape(), 1) ||
      FromLast(out.shape(), 0) != FromLast(value.shape(), 0)) {
    return false;
  }
  const bool has_mask = call.arguments[kMask].tag != Argument::Tag::kNone;
  if (has_mask && !IsMask(call.tensor(kMask), out, keys)) return false;
  if (call.arguments[kDropout].scalar.To<double>() != 0) return false;
  if (!attention) return true;
  AttentionHead& head = attention->first;
  head.type = out.data_type();
  if (has_mask) head.mask_type = call.tensor(kMask).data_type();
  if (is_grouped) head.heads = FromLast(query.shape(), 2) / FromLast(key.shape(), 2);
  head.queries = FromLast(out.shape(), 1);
  head.keys = keys;
  head.key_size = key_size;
  head.value_size = FromLast(out.shape(), 0);
  if (call.arguments[kIsCausal].scalar.To<bool>()) head.end = 1;
  const Argument& scale = call.arguments[kScale];
  head.scale = scale.tag == Argument::Tag::kNone ? 1 / std::sqrt(static_cast<double>(key_size))
                                                 : scale.scalar.To<double>();
  // The dimensions of an empty out can be too many for a geometry.
  if (out.element_count() != 0) FillBatch(call, is_grouped, attention);
  return true;
}

}  // namespace infini::ops
