#include "cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

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
  const float* bias;    // to add to the scores; can be null
  const float* begins;  // the first key of the block that each query sees; null: the first one
  const float* ends;    // the key after the last one that it sees; null: all, as `begins`
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
        page_(shape.has_few_rows ? 0
                                 : shape.block_keys * std::max(shape.query_size, shape.value_size)),
        keys_((shape.block_keys + kMostLanes) * shape.query_size),
        block_values_((shape.value_size + kMostLanes) * shape.block_keys),
        scores_((shape.block_keys + kMostLanes) *
                (shape.has_few_rows ? shape.block_rows : shape.strip)),
        bias_(shape.block_keys * shape.strip),
        bias_row_(shape.block_keys),
        values_(shape.block_rows * shape.value_size),
        results_(shape.block_rows * shape.value_size),
        largest_(shape.block_rows),
        sums_(shape.block_rows),
        begins_(shape.block_rows),
        ends_(shape.block_rows) {}

  // True if it can compute heads of another shape of the same call.
  bool Fits(const AttentionShape& shape) const {
    return shape.has_few_rows == shape_.has_few_rows && shape.block_rows == shape_.block_rows &&
           shape.block_keys == shape_.block_keys;
  }

  void Run(const AttentionHead& head, std::int64_t first) {
    head_ = &head;
    first_ = first;
    count_ = std::min(head.queries * head.heads - first, shape_.block_rows);
    ReadQueries();
    std::fill_n(largest_.get(), shape_.block_rows, kLowest);
    std::fill_n(sums_.get(), shape_.block_rows, 0.0f);
    std::fill_n(values_.get(), shape_.block_rows * shape_.value_size, 0.0f);
    const std::int64_t end = EndOf(count_ - 1);
    for (block_ = BeginOf(0) / kBlockKeys * kBlockKeys; block_ < end; block_ += kBlockKeys) {
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

  // The first key that a row sees, without the mask, and the one after the last.
  std::int64_t BeginOf(std::int64_t row) const {
    return std::clamp(QueryOf(row) + head_->begin, std::int64_t{0}, head_->keys);
  }
  std::int64_t EndOf(std::int64_t row) const {
    return std::clamp(QueryOf(row) + head_->end, std::int64_t{0}, head_->keys);
  }

  // The same, of this block.
  std::int64_t BeginInBlock(std::int64_t row) const { return InBlock(BeginOf(row)); }
  std::int64_t EndInBlock(std::int64_t row) const { return InBlock(EndOf(row)); }
  std::int64_t InBlock(std::int64_t key) const {
    return std::clamp(key - block_, std::int64_t{0}, block_size_);
  }

  // Calls `function` with the keys or values of this block, in runs of the same step: the place of
  // the first one in the block, their number, and the address.
  template <typename Function>
  void ForEachRun(const AttentionRows& rows, const Function& function) const {
    const std::int64_t page_size = head_->page_size;
    if (page_size == 0) return function(0, block_size_, BlockOf(rows));
    for (std::int64_t i = 0; i < block_size_;) {
      const std::int64_t key = block_ + i;
      const std::int64_t first = key % page_size;
      const std::int64_t count = std::min(page_size - first, block_size_ - i);
      const std::int64_t place = head_->pages(key / page_size) * rows.page + first * rows.row;
      function(i, count, rows.data + place * shape_.element_size);
      i += count;
    }
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

  bool HasBias() const {
    return head_->rows[AttentionHead::kMask].data || head_->rows[AttentionHead::kSlopes].data;
  }

  // What is added to the scores of a row in this block.
  const float* ReadBias(std::int64_t row) {
    head_->rows[AttentionHead::kMask].data ? ReadMask(row) : ReadSlopes(row);
    return bias_row_;
  }

  void ReadMask(std::int64_t row) {
    const AttentionRows& mask = head_->rows[AttentionHead::kMask];
    const auto size = static_cast<std::int64_t>(DataTypeSize(head_->mask_type));
    const char* const source = At(mask, row, size) + block_ * mask.column * size;
    if (head_->mask_type == DataType::kBool) {
      for (std::int64_t j = 0; j < block_size_; ++j) {
        bias_row_[j] = source[j * mask.column] ? 0 : kLowest;
      }
    } else {
      ProductKernelsOf(head_->mask_type)
          .convert(source, 0, mask.column, 1, block_size_, bias_row_, block_size_);
    }
  }

  void ReadSlopes(std::int64_t row) {
    const AttentionRows& slopes = head_->rows[AttentionHead::kSlopes];
    const float slope = *reinterpret_cast<const float*>(At(slopes, row, sizeof(float)));
    const std::int64_t own = QueryOf(row) + head_->keys - head_->queries - block_;
    for (std::int64_t j = 0; j < block_size_; ++j) {
      bias_row_[j] = -slope * static_cast<float>(std::abs(own - j));
    }
  }

  void Cap(std::int64_t count) {
    const auto cap = static_cast<float>(head_->softcap);
    if (cap != 0) INFINI_OPS_KERNEL(CapScores)(count, cap, scores_);
  }

  // Few rows, which are contiguous: the scores of each are [keys].

  // Elements whose columns are contiguous, in place or converted.
  struct Block {
    const ProductKernels& kernels;
    const void* data;
    std::int64_t stride;
  };

  static bool IsContiguous(const AttentionRows& rows, std::int64_t columns) {
    return rows.column == 1 || columns == 1;
  }

  // This block of keys or values.
  Block Converted(const AttentionRows& rows, std::int64_t columns, float* room,
                  std::int64_t size) const {
    ForEachRun(rows, [&](std::int64_t first, std::int64_t count, const char* data) {
      shape_.kernels.convert(data, rows.row, rows.column, count, columns, room + first * size,
                             size);
    });
    return {shape_.floats, room, size};
  }

  void MultiplyKeys() {
    const AttentionRows& key = head_->rows[AttentionHead::kKey];
    const auto multiply = [&](const Block& keys, std::int64_t first, std::int64_t count) {
      keys.kernels.multiply_along(count_, count, head_->key_size, queries_, shape_.query_size,
                                  keys.data, keys.stride, scores_ + first, shape_.block_keys);
    };
    if (!IsContiguous(key, head_->key_size)) {
      return multiply(Converted(key, head_->key_size, keys_, shape_.query_size), 0, block_size_);
    }
    ForEachRun(key, [&](std::int64_t first, std::int64_t count, const char* data) {
      multiply({shape_.kernels, data, key.row}, first, count);
    });
  }

  void AddValues() {
    const AttentionRows& value = head_->rows[AttentionHead::kValue];
    const auto multiply = [&](const Block& values, std::int64_t first, std::int64_t count) {
      values.kernels.multiply_across(count_, head_->value_size, count, scores_ + first,
                                     shape_.block_keys, values.data, values.stride, results_,
                                     shape_.value_size, first > 0);
    };
    // The kernel adds the products of four keys at a time, which must be the same with any pages.
    if (!IsContiguous(value, head_->value_size) || head_->page_size % 4 != 0) {
      multiply(Converted(value, head_->value_size, block_values_, shape_.value_size), 0,
               block_size_);
    } else {
      ForEachRun(value, [&](std::int64_t first, std::int64_t count, const char* data) {
        multiply({shape_.kernels, data, value.row}, first, count);
      });
    }
    for (std::int64_t i = 0; i < count_ * shape_.value_size; ++i) values_[i] += results_[i];
  }

  void AddFewRows() {
    const std::int64_t row_size = shape_.block_keys;
    MultiplyKeys();
    Cap(count_ * row_size);
    const auto softmax = INFINI_OPS_KERNEL(SoftmaxRow);
    for (std::int64_t i = 0; i < count_; ++i) {
      float* const scores = scores_ + i * row_size;
      if (HasBias()) {
        const float* const bias = ReadBias(i);
        for (std::int64_t j = 0; j < block_size_; ++j) scores[j] += bias[j];
      }
      std::fill(scores, scores + BeginInBlock(i), kLowest);
      std::fill(scores + EndInBlock(i), scores + row_size, kLowest);
      const float factor = softmax(row_size, scores, largest_ + i, sums_ + i);
      float* const sums = values_ + i * shape_.value_size;
      for (std::int64_t j = 0; j < head_->value_size; ++j) sums[j] *= factor;
    }
    AddValues();
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
    if (head_->page_size == 0) {
      shape_.kernels.pack_rows(shape_.kernels, BlockOf(key), key.row, key.column, block_size_,
                               head_->key_size, keys_);
      shape_.kernels.pack_rows(shape_.kernels, BlockOf(value), value.column, value.row,
                               head_->value_size, block_size_, block_values_);
    } else {
      const Block keys = Converted(key, head_->key_size, page_, shape_.query_size);
      keys.kernels.pack_rows(keys.kernels, keys.data, keys.stride, 1, block_size_, head_->key_size,
                             keys_);
      const Block values = Converted(value, head_->value_size, page_, shape_.value_size);
      values.kernels.pack_rows(values.kernels, values.data, 1, values.stride, head_->value_size,
                               block_size_, block_values_);
    }
    for (std::int64_t i = 0; i < count_; i += shape_.strip) AddStrip(i);
  }

  void AddStrip(std::int64_t first) {
    const std::int64_t rows = std::min(shape_.strip, count_ - first);
    const std::int64_t last = first + rows - 1;
    if (EndInBlock(last) == 0 || BeginInBlock(first) == block_size_) return;
    const std::int64_t strip = shape_.strip;
    const std::int64_t tile = shape_.floats.tile_rows;
    shape_.floats.multiply_block(block_size_, rows, head_->key_size, keys_, tile * head_->key_size,
                                 packed_queries_ + first * head_->key_size, 0, scores_, strip,
                                 false);
    Cap(block_size_ * strip);
    if (HasBias()) {
      for (std::int64_t i = 0; i < rows; ++i) {
        const float* const bias = ReadBias(first + i);
        for (std::int64_t j = 0; j < block_size_; ++j) bias_[j * strip + i] = bias[j];
      }
    }
    const bool sees_all = EndInBlock(first) == block_size_ && BeginInBlock(last) == 0;
    for (std::int64_t i = first; i <= last && !sees_all; ++i) {
      begins_[i] = static_cast<float>(BeginInBlock(i));
      ends_[i] = static_cast<float>(EndInBlock(i));
    }
    float* const sums = values_ + first * shape_.value_size;
    INFINI_OPS_KERNEL(SoftmaxColumns)
    ({block_size_, rows, strip, head_->value_size, scores_, HasBias() ? bias_.get() : nullptr,
      sees_all ? nullptr : begins_ + first, sees_all ? nullptr : ends_ + first, largest_ + first,
      sums_ + first, sums});
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
    const AttentionRows& lse = head_->rows[AttentionHead::kLse];
    if (!lse.data) return;
    char* const place = const_cast<char*>(At(lse, row, sizeof(float)));
    *reinterpret_cast<float*>(place) =
        sums_[row] == 0 ? kLowest : largest_[row] + std::log(sums_[row]);
  }

  const AttentionShape shape_;
  const AttentionHead* head_ = nullptr;
  std::int64_t first_ = 0;
  std::int64_t count_ = 0;
  std::int64_t block_ = 0;  // the first key of the block
  std::int64_t block_size_ = 0;
  FloatArray queries_;
  FloatArray packed_queries_;
  FloatArray page_;
  FloatArray keys_;
  FloatArray block_values_;
  FloatArray scores_;
  FloatArray bias_;
  FloatArray bias_row_;
  FloatArray values_;  // the sums so far
  FloatArray results_;
  FloatArray largest_;
  FloatArray sums_;
  FloatArray begins_;
  FloatArray ends_;
};

// The rows of a sequence in blocks, those of each head after the other, as shares of the work.
struct SequenceWork {
  std::int64_t begin;  // what all sequences before have to do, in multiplications
  std::int64_t blocks;
  std::int64_t of_block;
};

}  // namespace

void Attend(std::int64_t sequences, std::int64_t heads,
            FunctionRef<AttentionHead(std::int64_t, std::int64_t)> head_of) {
  std::vector<SequenceWork> work;
  std::int64_t multiplications = 0;
  for (std::int64_t i = 0; i < sequences; ++i) {
    const AttentionHead head = head_of(i, 0);
    work.push_back({multiplications, 0, 1});
    if (head.queries == 0) continue;
    const AttentionShape shape(head);
    const std::int64_t seen = std::min(head.keys, head.end - head.begin + shape.block_rows);
    work.back().blocks = CeilDiv(shape.rows, shape.block_rows);
    work.back().of_block =
        std::max<std::int64_t>(shape.block_rows * seen * (head.key_size + head.value_size), 1);
    multiplications += heads * work.back().blocks * work.back().of_block;
  }
  // Each block belongs to the piece of the work in which it begins.
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    std::optional<AttentionWorker> worker;
    for (std::int64_t i = 0; i < sequences && work[static_cast<std::size_t>(i)].begin < end; ++i) {
      const SequenceWork& own = work[static_cast<std::size_t>(i)];
      const std::int64_t last =
          std::min(CeilDiv(end - own.begin, own.of_block), heads * own.blocks);
      std::int64_t j = CeilDiv(std::max<std::int64_t>(begin - own.begin, 0), own.of_block);
      if (j >= last) continue;
      const AttentionShape shape(head_of(i, 0));
      if (!worker || !worker->Fits(shape)) worker.emplace(shape);
      for (; j < last; ++j) {
        worker->Run(head_of(i, j / own.blocks), j % own.blocks * shape.block_rows);
      }
    }
  };
  ParallelFor(multiplications, kMultiplicationsPerThread, run);
}

}  // namespace infini::ops::cpu
