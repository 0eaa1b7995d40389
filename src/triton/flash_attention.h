#ifndef INFINI_OPS_TRITON_FLASH_ATTENTION_H_
#define INFINI_OPS_TRITON_FLASH_ATTENTION_H_

#include <algorithm>
#include <cstdint>

#include "core/attention.h"
#include "triton/launch.h"
#include "triton/operands.h"

// The glue code of the operators of flash-attention.
namespace infini::ops::triton {

// Places of queries and keys, and their differences, are counted with 32 bits.
inline constexpr std::int64_t kMostPlaces = std::int64_t{1} << 30;

inline bool HasCountablePlaces(const Invocation& call, const FlashAttention& attention) {
  const AttentionHead& head = attention.first;
  return IsCountable(call) && std::max(head.key_size, head.value_size) <= 256 &&
         attention.query_rows <= kMostPlaces / std::max<std::int64_t>(head.heads, 1) &&
         attention.key_rows <= kMostPlaces;
}
inline constexpr char kFlashLimit[] =
    "no dimension, row of block_table or rows of all heads of more than 2^30 elements, and at most "
    "256 columns";

template <typename Request>
void DescribeOperands(const FlashAttention& attention, Request* request) {
  std::int64_t unused;
  struct {
    void** data;
    std::int64_t *sequence, *head, *row, *column, *page;
  } const places[AttentionHead::kOperands] = {
      {&request->out, &request->out_sequence, &request->out_head, &request->out_row,
       &request->out_column, &unused},
      {&request->query, &request->query_sequence, &request->query_head, &request->query_row,
       &request->query_column, &unused},
      {&request->key, &request->key_sequence, &request->key_head, &request->key_row,
       &request->key_column, &request->key_page},
      {&request->value, &request->value_sequence, &request->value_head, &request->value_row,
       &request->value_column, &request->value_page},
      {},  // there is no mask
      {&request->lse, &request->lse_sequence, &request->lse_head, &request->lse_row, &unused,
       &unused},
      {&request->slopes, &request->slopes_sequence, &request->slopes_head, &unused, &unused,
       &unused}};
  for (int operand = 0; operand < AttentionHead::kOperands; ++operand) {
    const AttentionRows& rows = attention.first.rows[operand];
    if (!rows.data) continue;
    const bool is_float32 = operand == AttentionHead::kLse || operand == AttentionHead::kSlopes;
    const DataType type = is_float32 ? DataType::kFloat32 : attention.first.type;
    *places[operand].data = rows.data;
    *places[operand].sequence =
        attention.sequence_steps[operand] / static_cast<std::int64_t>(DataTypeSize(type));
    *places[operand].head = rows.head;
    *places[operand].row = rows.row;
    *places[operand].column = rows.column;
    *places[operand].page = rows.page;
  }
  request->has_lse = request->lse != nullptr;
  request->has_slopes = request->slopes != nullptr;
}

// The size of an index is 0 if there is no tensor.
template <typename Request>
void DescribeIndices(const FlashAttention& attention, Request* request) {
  const auto describe = [](const Indices& indices, void** data, std::int64_t* size,
                           std::int64_t* stride) {
    if (!indices.defined()) return;
    *data = indices.data();
    *size = indices.element_size();
    *stride = indices.step();
  };
  describe(attention.query_ends, &request->query_ends, &request->query_ends_size,
           &request->query_ends_stride);
  describe(attention.key_ends, &request->key_ends, &request->key_ends_size,
           &request->key_ends_stride);
  describe(attention.key_counts, &request->key_counts, &request->key_counts_size,
           &request->key_counts_stride);
  describe(attention.pages, &request->pages, &request->pages_size, &request->pages_stride);
  request->pages_sequence = attention.pages.row_step();
}

// `most_queries` is the length of the longest sequence, or more. Without pages, all rows are one.
template <typename Request>
Request MakeFlashRequest(const FlashAttention& attention, std::int64_t most_queries) {
  const AttentionHead& head = attention.first;
  const bool is_paged = attention.pages.defined();
  const auto window = [](std::int64_t size) {
    return size < 0 ? kMostPlaces : std::min(size, kMostPlaces);
  };
  Request request{};
  request.data_type = static_cast<int>(head.type);
  request.sequences = attention.sequences;
  request.most_queries = std::clamp<std::int64_t>(most_queries, 0, attention.query_rows);
  request.query_rows = attention.query_rows;
  request.key_rows = attention.key_rows;
  request.key_limit = is_paged ? AttentionHead::kUnlimited : attention.key_rows;
  request.heads = head.heads;
  request.key_heads = attention.key_heads;
  request.key_size = head.key_size;
  request.value_size = head.value_size;
  request.page_size = is_paged ? head.page_size : kMostPlaces;
  request.page_count = is_paged ? attention.page_count : 1;
  request.left = window(attention.left);
  request.right = window(attention.right);
  request.scale = head.key_size == 0 ? 0 : head.scale;  // which is infinite
  request.softcap = head.softcap;
  DescribeOperands(attention, &request);
  DescribeIndices(attention, &request);
  return request;
}

template <typename Request>
void FlashAttend(const char* name,
                 InfiniOpsTritonStatus (*dispatcher)(const Request*, InfiniOpsTritonCall*),
                 const Invocation& invocation, const FlashAttention& attention,
                 std::int64_t most_queries) {
  Launch(name, dispatcher, MakeFlashRequest<Request>(attention, most_queries), invocation);
}

}  // namespace infini::ops::triton

#endif  // INFINI_OPS_TRITON_FLASH_ATTENTION_H_
