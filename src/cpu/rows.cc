#include "cpu/rows.h"

#include <cstddef>
#include <memory>
#include <vector>

#include "cpu/elements.h"
#include "cpu/parallel.h"
#include "cpu/row_elements.h"
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
template <typename T>
class InputRows {
 public:
  explicit InputRows(const Rows& rows)
      : rows_(rows), gathered_(rows.is_contiguous() ? nullptr : new T[rows.size]) {}

  const void* Read(std::int64_t row) const {
    return RowElements<T>(rows_.At(row), rows_.stride).Read(0, rows_.size, gathered_.get());
  }

 private:
  const Rows& rows_;
  std::unique_ptr<T[]> gathered_;
};

// The rows of an out: computed in place, or somewhere else first.
template <typename T>
class OutRows {
 public:
  OutRows(const Rows& rows, bool is_streamed)
      : rows_(rows),
        is_streamed_(is_streamed && rows.is_contiguous()),
        computed_(rows.is_contiguous() && !is_streamed_ ? nullptr : new T[rows.size]) {}

  void* Room(std::int64_t row) const { return computed_ ? computed_.get() : At(row).At(0); }

  void Write(std::int64_t row) const {
    if (is_streamed_) {
      Stream(At(row).At(0), computed_.get(), static_cast<std::size_t>(rows_.size) * sizeof(T));
    } else if (computed_) {
      At(row).Write(0, rows_.size, computed_.get());
    }
  }

 private:
  RowElements<T> At(std::int64_t row) const { return {rows_.At(row), rows_.stride}; }

  const Rows& rows_;
  bool is_streamed_;
  std::unique_ptr<T[]> computed_;
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
  WithSizeOf(out.data_type(), [&](auto* element) {
    using T = ElementOf<decltype(element)>;
    const Rows& rows = to.front();
    ParallelFor(
        rows.count, kElementsPerThread / rows.size, [&](std::int64_t begin, std::int64_t end) {
          std::vector<InputRows<T>> sources;
          std::vector<OutRows<T>> targets;
          for (const Rows& each : from) sources.emplace_back(each);
          for (const Rows& each : to) targets.emplace_back(each, is_streamed);
          const std::unique_ptr<char[]> scratch(scratch_bytes == 0 ? nullptr
                                                                   : new char[scratch_bytes]);
          const void* elements[kMostRows];
          void* rooms[kMostRows];
          for (std::int64_t row = begin; row < end; ++row) {
            for (std::size_t i = 0; i < sources.size(); ++i) elements[i] = sources[i].Read(row);
            for (std::size_t i = 0; i < targets.size(); ++i) rooms[i] = targets[i].Room(row);
            loop(row, elements, rooms, scratch.get());
            for (const OutRows<T>& target : targets) target.Write(row);
          }
          if (is_streamed) FinishStreams();
        });
  });
}

const void* Gather(const Tensor& vector, std::vector<char>* buffer) {
  const void* elements = nullptr;
  WithSizeOf(vector.data_type(), [&](auto* element) {
    using T = ElementOf<decltype(element)>;
    const Rows row(vector);
    if (!row.is_contiguous()) buffer->resize(static_cast<std::size_t>(row.size) * sizeof(T));
    T* const room = reinterpret_cast<T*>(buffer->data());
    elements = RowElements<T>(row.At(0), row.stride).Read(0, row.size, room);
  });
  return elements;
}

}  // namespace infini::ops::cpu
