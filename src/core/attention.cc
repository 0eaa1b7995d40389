#include "core/attention.h"

#include <cmath>
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

}  // namespace

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
  head.is_causal = call.arguments[kIsCausal].scalar.To<bool>();
  head.shift = 1;
  const Argument& scale = call.arguments[kScale];
  head.scale = scale.tag == Argument::Tag::kNone ? 1 / std::sqrt(static_cast<double>(key_size))
                                                 : scale.scalar.To<double>();
  // The dimensions of an empty out can be too many for a geometry.
  if (out.element_count() != 0) FillBatch(call, is_grouped, attention);
  return true;
}

}  // namespace infini::ops
