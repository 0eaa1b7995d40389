#ifndef INFINI_OPS_CORE_INDICES_H_
#define INFINI_OPS_CORE_INDICES_H_

#include <cstddef>
#include <cstdint>

#include "infini/ops/tensor.h"

namespace infini::ops {

// Reads and writes a tensor of int32 or int64, of at most two dimensions.
class Indices {
 public:
  Indices() = default;  // no tensor
  explicit Indices(const Tensor& tensor)
      : data_(tensor.data<char>()), is_wide_(tensor.data_type() == DataType::kInt64) {
    const std::size_t rank = tensor.dimensions();
    if (rank > 0) step_ = tensor.strides()[rank - 1];
    if (rank > 1) row_step_ = tensor.strides()[0];
  }

  bool defined() const { return data_; }
  char* data() const { return data_; }
  // The steps between elements and between rows, in elements.
  std::int64_t step() const { return step_; }
  std::int64_t row_step() const { return row_step_; }
  std::int64_t element_size() const {
    return static_cast<std::int64_t>(is_wide_ ? sizeof(std::int64_t) : sizeof(std::int32_t));
  }
  std::int64_t operator()(std::int64_t i) const {
    return is_wide_ ? reinterpret_cast<const std::int64_t*>(data_)[i * step_]
                    : reinterpret_cast<const std::int32_t*>(data_)[i * step_];
  }
  void Write(std::int64_t i, std::int64_t value) const {
    if (is_wide_) {
      reinterpret_cast<std::int64_t*>(data_)[i * step_] = value;
    } else {
      reinterpret_cast<std::int32_t*>(data_)[i * step_] = static_cast<std::int32_t>(value);
    }
  }
  // One row of two dimensions.
  Indices Row(std::int64_t i) const {
    Indices row = *this;
    row.data_ += i * row_step_ * element_size();
    return row;
  }

 private:
  char* data_ = nullptr;
  std::int64_t step_ = 0;
  std::int64_t row_step_ = 0;
  bool is_wide_ = false;
};

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_INDICES_H_
