#ifndef INFINI_OPS_TENSOR_H_
#define INFINI_OPS_TENSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "infini/ops/data_type.h"
#include "infini/ops/device.h"
#include "infini/ops/export.h"
#include "infini/ops/span.h"

namespace infini::ops {

// A view of memory with another owner, independent of any framework. Shape and strides are counted
// in elements; a stride of 0 broadcasts.
class INFINI_OPS_API Tensor {
 public:
  // Not a tensor: an absent element in a list of optional tensors.
  Tensor() = default;

  // Contiguous, row-major.
  Tensor(void* data, Span<std::int64_t> shape, DataType data_type, Device device = {});

  // Throws `std::invalid_argument` unless there are as many strides as dimensions.
  Tensor(void* data, Span<std::int64_t> shape, Span<std::int64_t> strides, DataType data_type,
         Device device = {});

  bool defined() const { return defined_; }
  void* data() const { return data_; }
  template <typename T>
  T* data() const {
    return static_cast<T*>(data_);
  }

  std::size_t dimensions() const { return sizes_.size() / 2; }
  Span<std::int64_t> shape() const { return {sizes_.data(), dimensions()}; }
  Span<std::int64_t> strides() const { return {sizes_.data() + dimensions(), dimensions()}; }
  std::int64_t element_count() const;
  bool is_contiguous() const;

  DataType data_type() const { return data_type_; }
  Device device() const { return device_; }

 private:
  void* data_ = nullptr;
  std::vector<std::int64_t> sizes_;  // the shape, then the strides: one allocation
  DataType data_type_ = DataType::kFloat32;
  Device device_;
  bool defined_ = false;
};

// True if an elementwise kernel can write `out` while it reads `input`: the elements of `out` do
// not overlap each other, and the two tensors are the same view or do not overlap.
INFINI_OPS_API bool IsWritable(const Tensor& out, const Tensor& input);

// "[2, 3]". Used in messages.
INFINI_OPS_API std::string DescribeShape(Span<std::int64_t> shape);

// "float32[2, 3]"; "undefined" for `Tensor()`. Used in messages.
INFINI_OPS_API std::string Describe(const Tensor& tensor);

}  // namespace infini::ops

#endif  // INFINI_OPS_TENSOR_H_
