#include "cpu/rows.h"

#include <cstddef>
#include <memory>
#include <vector>

#include "cpu/copy.h"
#include "cpu/parallel.h"
#include "cpu/stream.h"

namespace infini::ops::cpu {
namespace {

// The addresses of a tensor's rows. Strides are in bytes.
class Rows {
 public:
  explicit Rows(const Tensor& tensor)
      : data_(tensor.data<char>()),
        element_size_(static_cast<std::int64_t>(DataTypeSize(tensor.data_type()))) {
    const std::size_t last = tensor.dimensions() - 1;
    size = tensor.shape()[last];
    stride = tensor.strides()[last] * element_size_;
    for (std::size_t i = 0; i < last; ++i) {
      const Dimension dimension{tensor.shape()[i], tensor.strides()[i] * element_size_};
      count *= dimension.size;
      // Merge two dimensions if one continues the other.
      if (!dimensions_.empty() && dimensions_.back().stride == dimension.size * dimension.stride) {
        dimensions_.back() = {dimensions_.back().size * dimension.size, dimension.stride};
      } else if (dimension.size != 1) {
        dimensions_.push_back(dimension);
      }
    }
  }

  bool is_contiguous() const { return stride == element_size_; }

  char* At(std::int64_t row) const {
    std::int64_t offset = 0;
    for (std::size_t i = dimensions_.size(); i-- > 1; row /= dimensions_[i].size) {
      offset += row % dimensions_[i].size * dimensions_[i].stride;
    }
    return data_ + (dimensions_.empty() ? offset : offset + row * dimensions_[0].stride);
  }

  std::size_t bytes() const { return static_cast<std::size_t>(size * element_size_); }

  // Copies a row to contiguous elements, and from them.
  void Gather(std::int64_t row, char* elements) const {
    CopyOf(element_size_)(At(row), stride, elements, element_size_, size);
  }
  void Scatter(const char* elements, std::int64_t row) const {
    CopyOf(element_size_)(elements, element_size_, At(row), stride, size);
  }

  std::int64_t count = 1;
  std::int64_t size;    // of a row, in elements
  std::int64_t stride;  // between elements of a row

 private:
  struct Dimension {
    std::int64_t size;
    std::int64_t stride;
  };

  char* data_;
  std::int64_t element_size_;
  std::vector<Dimension> dimensions_;
};

// The rows of an input, as contiguous elements.
class InputRows {
 public:
  explicit InputRows(const Rows& rows)
      : rows_(rows), gathered_(rows.is_contiguous() ? nullptr : new char[rows.bytes()]) {}

  const void* Read(std::int64_t row) const {
    if (!gathered_) return rows_.At(row);
    rows_.Gather(row, gathered_.get());
    return gathered_.get();
  }

 private:
  const Rows& rows_;
  std::unique_ptr<char[]> gathered_;
};

// The rows of an out: computed in place, or somewhere else first.
class OutRows {
 public:
  OutRows(const Rows& rows, bool is_streamed)
      : rows_(rows),
        is_streamed_(is_streamed && rows.is_contiguous()),
        computed_(rows.is_contiguous() && !is_streamed_ ? nullptr : new char[rows.bytes()]) {}

  void* Room(std::int64_t row) const { return computed_ ? computed_.get() : rows_.At(row); }

  void Write(std::int64_t row) const {
    if (is_streamed_) {
      Stream(rows_.At(row), computed_.get(), rows_.bytes());
    } else if (computed_) {
      rows_.Scatter(computed_.get(), row);
    }
  }

 private:
  const Rows& rows_;
  bool is_streamed_;
  std::unique_ptr<char[]> computed_;
};

}  // namespace

void ForEachRow(std::initializer_list<const Tensor*> inputs,
                std::initializer_list<const Tensor*> outs, std::int64_t scratch_bytes, RowLoop loop,
                bool is_memory_bound) {
  const Tensor& out = **outs.begin();
  if (out.element_count() == 0) return;
  std::vector<Rows> from, to;
  bool is_streamed = is_memory_bound;
  for (const Tensor* input : inputs) from.emplace_back(*input);
  for (const Tensor* written : outs) {
    to.emplace_back(*written);
    for (const Tensor* input : inputs) is_streamed &= IsStreamed(*written, *input);
  }
  const Rows& rows = to.front();
  ParallelFor(rows.count, kElementsPerThread / rows.size,
              [&](std::int64_t begin, std::int64_t end) {
                std::vector<InputRows> sources;
                std::vector<OutRows> targets;
                for (const Rows& each : from) sources.emplace_back(each);
                for (const Rows& each : to) targets.emplace_back(each, is_streamed);
                const std::unique_ptr<char[]> scratch(scratch_bytes == 0 ? nullptr
                                                                         : new char[scratch_bytes]);
                const void* elements[kMostRows];
                void* rooms[kMostRows];
                for (std::int64_t row = begin; row < end; ++row) {
                  for (std::size_t i = 0; i < sources.size(); ++i)
                    elements[i] = sources[i].Read(row);
                  for (std::size_t i = 0; i < targets.size(); ++i) rooms[i] = targets[i].Room(row);
                  loop(row, elements, rooms, scratch.get());
                  for (const OutRows& target : targets) target.Write(row);
                }
                if (is_streamed) FinishStreams();
              });
}

const void* Gather(const Tensor& vector, std::vector<char>* buffer) {
  const Rows row(vector);
  if (row.is_contiguous()) return row.At(0);
  buffer->resize(row.bytes());
  row.Gather(0, buffer->data());
  return buffer->data();
}

}  // namespace infini::ops::cpu
