#include "cpu/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/product_parts.h"

namespace infini::ops::cpu {
namespace {

// Scores [keys, columns] of a block of keys, and what is known of their queries. The rows are
// `row_size` elements apart.
struct ScoreColumns {
  std::int64_t keys;
  std::int64_t columns;
  std::int64_t row_size;
  std::int64_t value_size;
  float* scores;
  const float* bias;  // to add to the scores; can be null
  const float* ends;  // the number of keys of the block that each query sees; null: all
  float* largest;
  float* sums;
  float* values;
};

}  // namespace
}  // namespace infini::ops::cpu

#define INFINI_OPS_KERNELS "cpu/attention_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops::cpu {
namespace {

// Keys at a time. Their scores for a strip of queries stay in the first-level cache, and the block
// of keys and values in the second-level one. Blocks begin at multiples of this number, whichever
// keys a query sees, so that its sums have the same order.
constexpr std::int64_t kBlockKeys = 192;

// AttentionRows, of all heads, that share a block of packed keys and values.
constexpr std::int64_t kBlockRows = 128;

// With at most this many rows, reading the keys and values in place is faster than packing them:
// 16 rows and 1024 keys then took 0.9 of torch's time, and packed 1.5.
constexpr std::int64_t kFewRows = 16;

constexpr std::int64_t kMostLanes = 16;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

constexpr std::int64_t RoundUp(std::int64_t count, std::int64_t step) {
  return CeilDiv(count, step) * step;
}

// What all heads of a call share. Sizes are in float32.
struct AttentionShape {
  explicit AttentionShape(const AttentionHead& head)
      : kernels(ProductKernelsOf(head.type)),
        floats(ProductKernelsOf(DataType::kFloat32)),
        element_size(kernels.element_size),
        rows(head.queries * head.heads),
        has_few_rows(rows <= kFewRows),
        strip(floats.tile_columns),
        block_rows(RoundUp(std::min(rows, kBlockRows), has_few_rows ? 4 : strip)),
        query_size(RoundUp(head.key_size, kMostLanes)),
        value_size(RoundUp(head.value_size, kMostLanes)),
        block_keys(RoundUp(std::min(kBlockKeys, head.keys), kMostLanes)) {}

  const ProductKernels& kernels;
  const ProductKernels& floats;
  std::int64_t element_size;
  std::int64_t rows;
  bool has_few_rows;
  std::int64_t strip;  // rows of a strip
  std::int64_t block_rows;
  std::int64_t query_size;
  std::int64_t value_size;
  std::int64_t block_keys;
};

// Uninitialized, with the alignment of vectors.
class FloatArray {
 public:
  explicit FloatArray(std::int64_t size) : buffer_(size * kSize) {}
  float* get() const { return reinterpret_cast<float*>(buffer_.get()); }
  operator float*() const { return get(); }

 private:
  static constexpr auto kSize = static_cast<std::int64_t>(sizeof(float));
  Buffer buffer_;
};

// Computes blocks of rows, one after the other. A row is a query of one of the heads; those of one
// query follow each other.
class AttentionWorker {
 public:
  explicit AttentionWorker(const AttentionShape& shape)
      : shape_(shape),
        queries_(shape.block_rows * shape.query_size),
        packed_queries_(shape.has_few_rows ? 0 : shape.block_rows * shape.query_size),
        keys_((shape.block_keys + kMostLanes) * shape.query_size),
        block_values_((shape.value_size + kMostLanes) * shape.block_keys),
        scores_((shape.block_keys + kMostLanes) *
                (shape.has_few_rows ? shape.block_rows : shape.strip)),
        bias_(shape.block_keys * shape.strip),
        mask_row_(shape.block_keys),
        values_(shape.block_rows * shape.value_size),
        results_(shape.block_rows * shape.value_size),
        largest_(shape.block_rows),
        sums_(shape.block_rows),
        ends_(shape.block_rows) {}

  void Run(const AttentionHead& head, std::int64_t first) {
    head_ = &head;
    first_ = first;
    count_ = std::min(shape_.rows - first, shape_.block_rows);
    ReadQueries();
    std::fill_n(largest_.get(), shape_.block_rows, kLowest);
    std::fill_n(sums_.get(), shape_.block_rows, 0.0f);
    std::fill_n(values_.get(), shape_.block_rows * shape_.value_size, 0.0f);
    const std::int64_t end = EndOf(count_ - 1);
    for (block_ = 0; block_ < end; block_ += kBlockKeys) {
      block_size_ = std::min(end - block_, kBlockKeys);
      shape_.has_few_rows ? AddFewRows() : AddStrips();
    }
    shape_.has_few_rows ? WriteFewRows() : WriteStrips();
  }

 private:
  std::int64_t QueryOf(std::int64_t row) const { return (first_ + row) / head_->heads; }

  const char* At(const AttentionRows& rows, std::int64_t row, std::int64_t element_size) const {
    const std::int64_t place = first_ + row;
    return rows.data +
           (place / head_->heads * rows.row + place % head_->heads * rows.head) * element_size;
  }

  // The number of keys that a row sees, without the mask.
  std::int64_t EndOf(std::int64_t row) const {
    if (!head_->is_causal) return head_->keys;
    return std::clamp(QueryOf(row) + head_->shift, std::int64_t{0}, head_->keys);
  }

  // The same, of this block.
  std::int64_t EndInBlock(std::int64_t row) const {
    return std::clamp(EndOf(row) - block_, std::int64_t{0}, block_size_);
  }

  const char* BlockOf(const AttentionRows& rows) const {
    return rows.data + block_ * rows.row * shape_.element_size;
  }

  void ReadQueries() {
    const AttentionRows& query = head_->rows[AttentionHead::kQuery];
    const auto scale = static_cast<float>(head_->scale);
    std::fill_n(queries_.get(), shape_.block_rows * shape_.query_size, 0.0f);
    for (std::int64_t i = 0; i < count_; ++i) {
      float* const row = queries_ + i * shape_.query_size;
      shape_.kernels.convert(At(query, i, shape_.element_size), 0, query.column, 1, head_->key_size,
                             row, shape_.query_size);
      for (std::int64_t j = 0; j < head_->key_size; ++j) row[j] *= scale;
    }
    if (shape_.has_few_rows) return;
    shape_.floats.pack_columns(shape_.floats, reinterpret_cast<const char*>(queries_.get()),
                               shape_.query_size, 1, count_, head_->key_size, packed_queries_);
  }

  // The mask of a row in this block, as numbers to add to the scores.
  const float* ReadMask(std::int64_t row) {
    const AttentionRows& mask = head_->rows[AttentionHead::kMask];
    const auto size = static_cast<std::int64_t>(DataTypeSize(head_->mask_type));
    const char* const source = At(mask, row, size) + block_ * mask.column * size;
    if (head_->mask_type == DataType::kBool) {
      for (std::int64_t j = 0; j < block_size_; ++j) {
        mask_row_[j] = source[j * mask.column] ? 0 : kLowest;
      }
    } else {
      ProductKernelsOf(head_->mask_type)
          .convert(source, 0, mask.column, 1, block_size_, mask_row_, block_size_);
    }
    return mask_row_;
  }

  bool HasMask() const { return head_->rows[AttentionHead::kMask].data; }

  // Few rows, which are contiguous: the scores of each are [keys].

  // A block of keys or values, whose columns are contiguous, in place or converted.
  struct Block {
    const ProductKernels& kernels;
    const void* data;
    std::int64_t stride;
  };
  Block Contiguous(const AttentionRows& rows, std::int64_t columns, float* room,
                   std::int64_t size) const {
    if (rows.column == 1 || columns == 1) return {shape_.kernels, BlockOf(rows), rows.row};
    shape_.kernels.convert(BlockOf(rows), rows.row, rows.column, block_size_, columns, room, size);
    return {shape_.floats, room, size};
  }

  void AddFewRows() {
    const Block keys =
        Contiguous(head_->rows[AttentionHead::kKey], head_->key_size, keys_, shape_.query_size);
    const Block values = Contiguous(head_->rows[AttentionHead::kValue], head_->value_size,
                                    block_values_, shape_.value_size);
    const std::int64_t row_size = shape_.block_keys;
    keys.kernels.multiply_along(count_, block_size_, head_->key_size, queries_, shape_.query_size,
                                keys.data, keys.stride, scores_, row_size);
    const auto softmax = INFINI_OPS_KERNEL(SoftmaxRow);
    for (std::int64_t i = 0; i < count_; ++i) {
      float* const scores = scores_ + i * row_size;
      if (HasMask()) {
        const float* const mask = ReadMask(i);
        for (std::int64_t j = 0; j < block_size_; ++j) scores[j] += mask[j];
      }
      const std::int64_t end = EndInBlock(i);
      std::fill(scores + end, scores + row_size, kLowest);
      const float factor = softmax(row_size, scores, largest_ + i, sums_ + i);
      float* const sums = values_ + i * shape_.value_size;
      for (std::int64_t j = 0; j < head_->value_size; ++j) sums[j] *= factor;
    }
    values.kernels.multiply_across(count_, head_->value_size, block_size_, scores_, row_size,
                                   values.data, values.stride, results_, shape_.value_size);
    for (std::int64_t i = 0; i < count_ * shape_.value_size; ++i) values_[i] += results_[i];
  }

  void WriteFewRows() {
    for (std::int64_t i = 0; i < count_; ++i) {
      float* const row = values_ + i * shape_.value_size;
      const float factor = FactorOf(i);
      for (std::int64_t j = 0; j < head_->value_size; ++j) row[j] *= factor;
      Write(i, row);
    }
  }

  // Strips of rows: the scores are [keys, rows], and the sums [columns, rows].

  void AddStrips() {
    const AttentionRows& key = head_->rows[AttentionHead::kKey];
    const AttentionRows& value = head_->rows[AttentionHead::kValue];
    shape_.kernels.pack_rows(shape_.kernels, BlockOf(key), key.row, key.column, block_size_,
                             head_->key_size, keys_);
    shape_.kernels.pack_rows(shape_.kernels, BlockOf(value), value.column, value.row,
                             head_->value_size, block_size_, block_values_);
    for (std::int64_t i = 0; i < count_; i += shape_.strip) AddStrip(i);
  }

  void AddStrip(std::int64_t first) {
    const std::int64_t rows = std::min(shape_.strip, count_ - first);
    if (EndInBlock(first + rows - 1) == 0) return;
    const std::int64_t strip = shape_.strip;
    const std::int64_t tile = shape_.floats.tile_rows;
    shape_.floats.multiply_block(block_size_, rows, head_->key_size, keys_, tile * head_->key_size,
                                 packed_queries_ + first * head_->key_size, 0, scores_, strip,
                                 false);
    if (HasMask()) {
      for (std::int64_t i = 0; i < rows; ++i) {
        const float* const mask = ReadMask(first + i);
        for (std::int64_t j = 0; j < block_size_; ++j) bias_[j * strip + i] = mask[j];
      }
    }
    const bool sees_all = EndInBlock(first) == block_size_;
    for (std::int64_t i = 0; i < rows && !sees_all; ++i) {
      ends_[first + i] = static_cast<float>(EndInBlock(first + i));
    }
    float* const sums = values_ + first * shape_.value_size;
    INFINI_OPS_KERNEL(SoftmaxColumns)
    ({block_size_, rows, strip, head_->value_size, scores_, HasMask() ? bias_.get() : nullptr,
      sees_all ? nullptr : ends_ + first, largest_ + first, sums_ + first, sums});
    shape_.floats.multiply_block(head_->value_size, rows, block_size_, block_values_,
                                 tile * block_size_, scores_, 0, sums, strip, true);
  }

  void WriteStrips() {
    for (std::int64_t first = 0; first < count_; first += shape_.strip) {
      const std::int64_t rows = std::min(shape_.strip, count_ - first);
      const float* const sums = values_ + first * shape_.value_size;
      for (std::int64_t i = 0; i < rows; ++i) {
        const float factor = FactorOf(first + i);
        for (std::int64_t j = 0; j < head_->value_size; ++j) {
          results_[j] = sums[j * shape_.strip + i] * factor;
        }
        Write(first + i, results_);
      }
    }
  }

  // The result of a row that sees no key is 0.
  float FactorOf(std::int64_t row) const { return sums_[row] == 0 ? 0 : 1 / sums_[row]; }

  void Write(std::int64_t row, const float* elements) const {
    const AttentionRows& out = head_->rows[AttentionHead::kOut];
    ProductEnd end{1, 0, {}, {}};
    end.out.data = const_cast<char*>(At(out, row, shape_.element_size));
    end.out.column_stride = out.column;
    shape_.kernels.finish(1, head_->value_size, elements, head_->value_size, end);
  }

  const AttentionShape& shape_;
  const AttentionHead* head_ = nullptr;
  std::int64_t first_ = 0;
  std::int64_t count_ = 0;
  std::int64_t block_ = 0;  // the first key of the block
  std::int64_t block_size_ = 0;
  FloatArray queries_;
  FloatArray packed_queries_;
  FloatArray keys_;
  FloatArray block_values_;
  FloatArray scores_;
  FloatArray bias_;
  FloatArray mask_row_;
  FloatArray values_;  // the sums so far
  FloatArray results_;
  FloatArray largest_;
  FloatArray sums_;
  FloatArray ends_;
};

}  // namespace

void Attend(const AttentionHead& first, std::int64_t count,
            FunctionRef<AttentionHead(std::int64_t)> head_of) {
  const AttentionShape shape(first);
  const std::int64_t blocks = CeilDiv(shape.rows, shape.block_rows);
  const std::int64_t multiplications = std::max<std::int64_t>(
      shape.block_rows * first.keys * (first.key_size + first.value_size), 1);
  ParallelFor(count * blocks, kMultiplicationsPerThread / multiplications,
              [&](std::int64_t begin, std::int64_t end) {
                AttentionWorker worker(shape);
                for (std::int64_t i = begin; i < end; ++i) {
                  const AttentionHead head = head_of(i / blocks);
                  worker.Run(head, i % blocks * shape.block_rows);
                }
              });
}

}  // namespace infini::ops::cpu
