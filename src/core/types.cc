#include <algorithm>
#include <iterator>
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

// By the value of `DataType`, which has no gaps.
constexpr DataTypeInfo kDataTypes[] = {
    {"uint8", 1},
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"float16", 2},
    {"float32", 4},
    {"float64", 8},
    {"complex32", 4},
    {"complex64", 8},
    {"complex128", 16},
    {"bool", 1},
    {"qint8", 1},
    {"quint8", 1},
    {"qint32", 4},
    {"bfloat16", 2},
    {"quint4x2", 1},
    {"quint2x4", 1},
    {"bits1x8", 1},
    {"bits2x4", 1},
    {"bits4x2", 1},
    {"bits8", 1},
    {"bits16", 2},
    {"float8_e5m2", 1},
    {"float8_e4m3fn", 1},
    {"float8_e5m2fnuz", 1},
    {"float8_e4m3fnuz", 1},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
    {"uint1", 1},
    {"uint2", 1},
    {"uint3", 1},
    {"uint4", 1},
    {"uint5", 1},
    {"uint6", 1},
    {"uint7", 1},
    {"int1", 1},
    {"int2", 1},
    {"int3", 1},
    {"int4", 1},
    {"int5", 1},
    {"int6", 1},
    {"int7", 1},
    {"float8_e8m0fnu", 1},
    {"float4_e2m1fn_x2", 1},
    {"bcomplex32", 4},
};
static_assert(std::size(kDataTypes) == static_cast<int>(DataType::kBComplex32) + 1);

DataTypeInfo Info(DataType data_type) {
  const auto index = static_cast<std::size_t>(data_type);
  return index < std::size(kDataTypes) ? kDataTypes[index] : DataTypeInfo{"unknown", 0};
}

}  // namespace

const char* DataTypeName(DataType data_type) { return Info(data_type).name; }

std::optional<DataType> ParseDataType(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kDataTypes); ++i) {
    if (name == kDataTypes[i].name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

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
    if (name == info.name || name == info.torch_device) return info.type;
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

// The range of addresses that contains all elements.
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

// The range of offsets, in bytes, of a tensor's elements in one period: the dimensions whose
// strides are multiples of it do not count. Strides are not negative.
std::int64_t ReachWithin(std::int64_t period, const Tensor& tensor, std::int64_t size) {
  std::int64_t reach = size;
  for (std::size_t i = 0; i < tensor.dimensions(); ++i) {
    const std::int64_t stride = tensor.strides()[i] * size;
    if (stride < 0) return period + 1;
    if (stride % period != 0) reach += (tensor.shape()[i] - 1) * stride;
  }
  return reach;
}

// True if two tensors lie beside each other in each row of a memory, as slices of a fused tensor
// do: their elements then differ, though their extents overlap. False if unsure.
bool AreInterleaved(const Tensor& a, const Tensor& b) {
  const auto a_size = static_cast<std::int64_t>(DataTypeSize(a.data_type()));
  const auto b_size = static_cast<std::int64_t>(DataTypeSize(b.data_type()));
  for (const std::int64_t stride : a.strides()) {
    const std::int64_t period = stride * a_size;
    if (period <= 0) continue;
    const std::int64_t distance = (b.data<char>() - a.data<char>()) % period;
    const std::int64_t offset = distance < 0 ? distance + period : distance;
    if (ReachWithin(period, a, a_size) <= offset &&
        offset + ReachWithin(period, b, b_size) <= period) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool IsWritable(const Tensor& out, const Tensor& input) {
  if (out.element_count() == 0 || input.element_count() == 0) return true;
  for (std::size_t i = 0; i < out.dimensions(); ++i) {
    if (out.strides()[i] == 0 && out.shape()[i] > 1) return false;
  }
  const auto [out_begin, out_end] = Extent(out);
  const auto [input_begin, input_end] = Extent(input);
  return SameView(out, input) || out_end <= input_begin || input_end <= out_begin ||
         AreInterleaved(out, input);
}

std::string DescribeShape(Span<std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i ? ", " : "") + std::to_string(shape[i]);
  }
  return text + ']';
}

std::string Describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return DataTypeName(tensor.data_type()) + DescribeShape(tensor.shape());
}

}  // namespace infini::ops
