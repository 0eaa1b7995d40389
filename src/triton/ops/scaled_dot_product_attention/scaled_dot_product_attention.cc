#include "base/scaled_dot_product_attention.h"

#include <algorithm>
#include <cstdint>

#include "core/attention.h"
#include "triton/launch.h"
#include "triton/operands.h"
#include "triton/scaled_dot_product_attention.h"

namespace infini::ops {
namespace {

using Request = InfiniOpsTritonScaledDotProductAttentionRequest;
using Batch = Geometry<AttentionHead::kOperands>;

std::int64_t MaskKind(const AttentionHead& head) {
  if (!head.rows[AttentionHead::kMask].data) return 0;
  if (head.mask_type == DataType::kBool) return 1;
  return head.mask_type == head.type ? 2 : 3;
}

// For the first two dimensions of the batch, from `head` on.
Request MakeRequest(const AttentionHead& head, const Batch& batch) {
  Request request{};
  request.data_type = static_cast<int>(head.type);
  request.queries = head.queries;
  request.keys = head.keys;
  request.key_size = head.key_size;
  request.value_size = head.value_size;
  request.heads = head.heads;
  request.inner_batches = triton::SizeOf(batch, 0);
  request.batches = request.inner_batches * triton::SizeOf(batch, 1);
  request.is_causal = head.end != AttentionHead::kUnlimited;
  if (request.is_causal) request.shift = head.end;
  request.mask_kind = MaskKind(head);
  request.scale = head.key_size == 0 ? 0 : head.scale;  // which is infinite
  std::int64_t unused;
  struct {
    void** data;
    std::int64_t *outer, *inner, *head, *row, *column;
  } const places[AttentionHead::kMask + 1] = {
      {&request.out, &request.out_outer, &request.out_inner, &request.out_head, &request.out_row,
       &request.out_column},
      {&request.query, &request.query_outer, &request.query_inner, &request.query_head,
       &request.query_row, &request.query_column},
      {&request.key, &request.key_outer, &request.key_inner, &unused, &request.key_row,
       &request.key_column},
      {&request.value, &request.value_outer, &request.value_inner, &unused, &request.value_row,
       &request.value_column},
      {&request.mask, &request.mask_outer, &request.mask_inner, &request.mask_head,
       &request.mask_row, &request.mask_column}};
  for (int operand = 0; operand <= AttentionHead::kMask; ++operand) {
    const AttentionRows& rows = head.rows[operand];
    if (!rows.data) continue;
    const DataType type = operand == AttentionHead::kMask ? head.mask_type : head.type;
    *places[operand].data = rows.data;
    *places[operand].outer = triton::StrideOf(batch, operand, 1, type);
    *places[operand].inner = triton::StrideOf(batch, operand, 0, type);
    *places[operand].head = rows.head;
    *places[operand].row = rows.row;
    *places[operand].column = rows.column;
  }
  return request;
}

bool HasFewColumns(const Invocation& call) {
  const auto columns = [&](std::size_t i) {
    const Span<std::int64_t> shape = call.tensor(i).shape();
    return shape[shape.size() - 1];
  };
  return triton::IsCountable(call) && std::max(columns(1), columns(2)) <= 128;
}

}  // namespace

template <>
struct Operator<ScaledDotProductAttention, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{
      ScaledDotProductAttention::kRequirements.types, &HasFewColumns,
      "no dimension of more than 2^30 elements, and at most 128 columns"};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation) {
    if (invocation.out().element_count() == 0) return;
    Attention attention;
    AttentionOf(invocation, &attention);
    const Batch& batch = attention.batch;
    const std::int64_t step = triton::SizeOf(batch, 0) * triton::SizeOf(batch, 1);
    for (std::int64_t first = 0; first < batch.count(); first += step) {
      triton::Launch("scaled_dot_product_attention", &InfiniOpsTritonScaledDotProductAttention,
                     MakeRequest(attention.At(first), batch), invocation);
    }
  }
};

INFINI_OPS_REGISTER(ScaledDotProductAttention, Device::Type::kNvidia, 9);

}  // namespace infini::ops
