#include <algorithm>
#include <stdexcept>
#include <utility>

#include "infini/ops/data_type.h"
#include "infini/ops/device.h"
#include "infini/ops/tensor.h"

namespace infini::ops {
namespace {

struct DataTypeInfo {
  const char* name;
  std::size_t size;
};

DataTypeInfo Info(DataType data_type) {
  switch (data_type) {
    case DataType::kUInt8:
      return {"uint8", 1};
    case DataType::kInt8:
      return {"int8", 1};
    case DataType::kInt16:
      return {"int16", 2};
    case DataType::kInt32:
      return {"int32", 4};
    case DataType::kInt64:
      return {"int64", 8};
    case DataType::kFloat16:
      return {"float16", 2};
    case DataType::kFloat32:
      return {"float32", 4};
    case DataType::kFloat64:
      return {"float64", 8};
    case DataType::kComplex32:
      return {"complex32", 4};
    case DataType::kComplex64:
      return {"complex64", 8};
    case DataType::kComplex128:
      return {"complex128", 16};
    case DataType::kBool:
      return {"bool", 1};
    case DataType::kBFloat16:
      return {"bfloat16", 2};
    case DataType::kFloat8E5M2:
      return {"float8_e5m2", 1};
    case DataType::kFloat8E4M3FN:
      return {"float8_e4m3fn", 1};
    case DataType::kFloat8E5M2FNUZ:
      return {"float8_e5m2fnuz", 1};
    case DataType::kFloat8E4M3FNUZ:
      return {"float8_e4m3fnuz", 1};
    case DataType::kUInt16:
      return {"uint16", 2};
    case DataType::kUInt32:
      return {"uint32", 4};
    case DataType::kUInt64:
      return {"uint64", 8};
  }
  return {"unknown", 0};
}

}  // namespace

const char* DataTypeName(DataType data_type) { return Info(data_type).name; }

std::size_t DataTypeSize(DataType data_type) { return Info(data_type).size; }

bool IsEnabled(Device::Type type) {
#ifdef INFINI_OPS_WITH_CPU
  if (type == Device::Type::kCpu) return true;
#endif
#ifdef INFINI_OPS_ACCELERATOR
  if (type == Device::Type::INFINI_OPS_ACCELERATOR) return true;
#endif
  return false;
}

Device::Type ParseDeviceType(std::string_view name) {
  std::string enabled;
  for (const DeviceTypeInfo& info : kDeviceTypes) {
    if (!IsEnabled(info.type)) continue;
    if (name == info.name || name == info.torch_name) return info.type;
    enabled += (enabled.empty() ? "" : ", ") + std::string(info.name);
  }
  throw std::invalid_argument("unknown device '" + std::string(name) +
                              "'; this build has: " + enabled);
}

Tensor::Tensor(void* data, Span<std::int64_t> shape, DataType data_type, Device device)
    : data_(data),
      sizes_(shape.begin(), shape.end()),
      data_type_(data_type),
      device_(device),
      defined_(true) {
  sizes_.resize(2 * shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    sizes_[shape.size() + i] = stride;
    stride *= shape[i];
  }
}

Tensor::Tensor(void* data, Span<std::int64_t> shape, Span<std::int64_t> strides, DataType data_type,
               Device device)
    : data_(data), data_type_(data_type), device_(device), defined_(true) {
  if (shape.size() != strides.size()) {
    throw std::invalid_argument("a tensor of " + std::to_string(shape.size()) +
                                " dimensions needs as many strides, got " +
                                std::to_string(strides.size()));
  }
  sizes_.reserve(2 * shape.size());
  sizes_.insert(sizes_.end(), shape.begin(), shape.end());
  sizes_.insert(sizes_.end(), strides.begin(), strides.end());
}

std::int64_t Tensor::element_count() const {
  std::int64_t count = 1;
  for (std::int64_t size : shape()) count *= size;
  return count;
}

bool Tensor::is_contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t i = dimensions(); i-- > 0;) {
    if (shape()[i] != 1 && strides()[i] != expected) return false;
    expected *= shape()[i];
  }
  return true;
}

namespace {

// The addresses that the elements lie between.
std::pair<const char*, const char*> Extent(const Tensor& tensor) {
  const auto size = static_cast<std::int64_t>(DataTypeSize(tensor.data_type()));
  const char* begin = tensor.data<char>();
  const char* end = begin + size;
  for (std::size_t i = 0; i < tensor.dimensions(); ++i) {
    const std::int64_t reach = (tensor.shape()[i] - 1) * tensor.strides()[i] * size;
    (reach < 0 ? begin : end) += reach;
  }
  return {begin, end};
}

bool SameView(const Tensor& a, const Tensor& b) {
  return a.data() == b.data() && a.data_type() == b.data_type() &&
         std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end()) &&
         std::equal(a.strides().begin(), a.strides().end(), b.strides().begin(), b.strides().end());
}

}  // namespace

bool IsWritable(const Tensor& out, const Tensor& input) {
  if (out.element_count() == 0 || input.element_count() == 0) return true;
  for (std::size_t i = 0; i < out.dimensions(); ++i) {
    if (out.strides()[i] == 0 && out.shape()[i] > 1) return false;
  }
  const auto [out_begin, out_end] = Extent(out);
  const auto [input_begin, input_end] = Extent(input);
  return SameView(out, input) || out_end <= input_begin || input_end <= out_begin;
}

std::string Describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::string text = DataTypeName(tensor.data_type());
  text += '[';
  for (std::size_t i = 0; i < tensor.dimensions(); ++i) {
    text += (i ? ", " : "") + std::to_string(tensor.shape()[i]);
  }
  return text + ']';
}

}  // namespace infini::ops
