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

}  // namespace

void ForEachRow(const Tensor& input, const Tensor& out, std::int64_t scratch_bytes, RowLoop loop,
                bool is_memory_bound) {
  const Rows from(input);
  const Rows to(out);
  if (out.element_count() == 0) return;
  const bool is_streamed = is_memory_bound && to.is_contiguous() && IsStreamed(out, input);
  const bool is_in_place = to.is_contiguous() && !is_streamed;
  WithSizeOf(out.data_type(), [&](auto* element) {
    using T = ElementOf<decltype(element)>;
    ParallelFor(to.count, kElementsPerThread / to.size, [&](std::int64_t begin, std::int64_t end) {
      const std::unique_ptr<T[]> gathered(from.is_contiguous() ? nullptr : new T[from.size]);
      const std::unique_ptr<T[]> computed(is_in_place ? nullptr : new T[to.size]);
      const std::unique_ptr<char[]> scratch(scratch_bytes == 0 ? nullptr : new char[scratch_bytes]);
      for (std::int64_t i = begin; i < end; ++i) {
        const RowElements<T> results(to.At(i), to.stride);
        T* const room = is_in_place ? results.At(0) : computed.get();
        loop(i, RowElements<T>(from.At(i), from.stride).Read(0, from.size, gathered.get()), room,
             scratch.get());
        if (is_streamed) {
          Stream(results.At(0), room, static_cast<std::size_t>(to.size) * sizeof(T));
        } else {
          results.Write(0, to.size, room);
        }
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
