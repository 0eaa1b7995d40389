#ifndef INFINI_OPS_CPU_ROWS_H_
#define INFINI_OPS_CPU_ROWS_H_

#include <cstdint>
#include <vector>

#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

// The addresses of a tensor's rows; a row is its last dimension.
class Rows {
 public:
  explicit Rows(const Tensor& tensor) {
    const std::size_t last = tensor.dimensions() - 1;
    size = tensor.shape()[last];
    stride = tensor.strides()[last];
    for (std::size_t i = 0; i < last; ++i) {
      const Dimension dimension{tensor.shape()[i], tensor.strides()[i]};
      count *= dimension.size;
      // Merge two dimensions if one continues the other.
      if (!dimensions_.empty() && dimensions_.back().stride == dimension.size * dimension.stride) {
        dimensions_.back() = {dimensions_.back().size * dimension.size, dimension.stride};
      } else if (dimension.size != 1) {
        dimensions_.push_back(dimension);
      }
    }
  }

  // In elements.
  std::int64_t Offset(std::int64_t row) const {
    std::int64_t offset = 0;
    for (std::size_t i = dimensions_.size(); i-- > 1; row /= dimensions_[i].size) {
      offset += row % dimensions_[i].size * dimensions_[i].stride;
    }
    return dimensions_.empty() ? offset : offset + row * dimensions_[0].stride;
  }

  std::int64_t count = 1;
  std::int64_t size;    // of a row
  std::int64_t stride;  // between elements of a row

 private:
  struct Dimension {
    std::int64_t size;
    std::int64_t stride;
  };

  std::vector<Dimension> dimensions_;
};

// The elements of a row in place if they are contiguous, otherwise copied into `buffer`.
template <typename T>
const T* Gather(const T* row, std::int64_t size, std::int64_t stride, std::vector<T>* buffer) {
  if (stride == 1) return row;
  buffer->resize(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) (*buffer)[i] = row[i * stride];
  return buffer->data();
}

// Calls `write` with contiguous memory for a row: the row itself, or `buffer`, which is then
// copied.
template <typename T, typename Write>
void Scatter(T* row, std::int64_t size, std::int64_t stride, std::vector<T>* buffer,
             const Write& write) {
  if (stride == 1) return write(row);
  buffer->resize(static_cast<std::size_t>(size));
  write(buffer->data());
  for (std::int64_t i = 0; i < size; ++i) row[i * stride] = (*buffer)[i];
}

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_ROWS_H_
