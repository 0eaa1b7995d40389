#include "bindings/arrays.h"

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/python.h"

namespace infini::ops::bindings {
namespace {

// DLPack's interface, which never changes within a major version:
// https://dmlc.github.io/dlpack/latest/c_api.html
struct DlDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct DlTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t dimensions;
  DlDataType type;
  const std::int64_t* shape;
  const std::int64_t* strides;  // in elements; nullptr for a contiguous array
  std::uint64_t byte_offset;
};
struct DlManagedTensor {
  static constexpr char kName[] = "dltensor";
  static constexpr char kUsedName[] = "used_dltensor";
  bool IsReadable() const { return true; }
  bool IsReadOnly() const { return false; }

  DlTensor tensor;
  void* context;
  void (*deleter)(DlManagedTensor*);
};
struct DlManagedTensorVersioned {
  static constexpr char kName[] = "dltensor_versioned";
  static constexpr char kUsedName[] = "used_dltensor_versioned";
  bool IsReadable() const { return major_version == 1; }
  bool IsReadOnly() const { return flags & 1; }

  std::uint32_t major_version;
  std::uint32_t minor_version;
  void* context;
  void (*deleter)(DlManagedTensorVersioned*);
  std::uint64_t flags;
  DlTensor tensor;
};
constexpr std::int32_t kCpuDevice = 1;

enum Code : std::uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8E4M3FN = 10,
  kFloat8E4M3FNUZ = 11,
  kFloat8E5M2 = 12,
  kFloat8E5M2FNUZ = 13,
  kFloat8E8M0FNU = 14,
};

struct DataTypeCode {
  Code code;
  std::uint8_t bits;
  DataType type;
};

constexpr DataTypeCode kDataTypeCodes[] = {
    {kInt, 8, DataType::kInt8},
    {kInt, 16, DataType::kInt16},
    {kInt, 32, DataType::kInt32},
    {kInt, 64, DataType::kInt64},
    {kUInt, 8, DataType::kUInt8},
    {kUInt, 16, DataType::kUInt16},
    {kUInt, 32, DataType::kUInt32},
    {kUInt, 64, DataType::kUInt64},
    {kFloat, 16, DataType::kFloat16},
    {kFloat, 32, DataType::kFloat32},
    {kFloat, 64, DataType::kFloat64},
    {kBfloat, 16, DataType::kBFloat16},
    {kComplex, 32, DataType::kComplex32},
    {kComplex, 64, DataType::kComplex64},
    {kComplex, 128, DataType::kComplex128},
    {kBool, 8, DataType::kBool},
    {kFloat8E4M3FN, 8, DataType::kFloat8E4M3FN},
    {kFloat8E4M3FNUZ, 8, DataType::kFloat8E4M3FNUZ},
    {kFloat8E5M2, 8, DataType::kFloat8E5M2},
    {kFloat8E5M2FNUZ, 8, DataType::kFloat8E5M2FNUZ},
    {kFloat8E8M0FNU, 8, DataType::kFloat8E8M0FNU},
};

std::optional<DataType> ToDataType(std::uint8_t code, std::int64_t bits) {
  for (const DataTypeCode& row : kDataTypeCodes) {
    if (code == row.code && bits == row.bits) return row.type;
  }
  return std::nullopt;
}

std::optional<Tensor> ViewOf(const DlTensor& tensor) {
  const std::optional<DataType> type = ToDataType(tensor.type.code, tensor.type.bits);
  if (!type || tensor.type.lanes != 1 || tensor.device_type != kCpuDevice) return std::nullopt;
  const auto dimensions = static_cast<std::size_t>(tensor.dimensions);
  void* const data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  const Span<std::int64_t> shape(tensor.shape, dimensions);
  if (!tensor.strides) return Tensor(data, shape, *type);
  return Tensor(data, shape, {tensor.strides, dimensions}, *type);
}

// Takes the tensor of a capsule, unless it is not usable.
template <typename Managed>
std::optional<Array> TakeFrom(PyObject* capsule, bool is_writable) {
  if (!PyCapsule_IsValid(capsule, Managed::kName)) return std::nullopt;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, Managed::kName));
  if (!managed->IsReadable() || (is_writable && managed->IsReadOnly())) return std::nullopt;
  std::optional<Tensor> view = ViewOf(managed->tensor);
  // Under this name, the capsule leaves the tensor to us.
  if (!view || PyCapsule_SetName(capsule, Managed::kUsedName) != 0) return std::nullopt;
  const auto release = [](void* taken) {
    auto* tensor = static_cast<Managed*>(taken);
    if (tensor->deleter) tensor->deleter(tensor);
  };
  return Array{*std::move(view), {managed, release}};
}

std::optional<Array> TakeFromCapsule(PyObject* capsule, bool is_writable) {
  std::optional<Array> array = TakeFrom<DlManagedTensor>(capsule, is_writable);
  return array ? std::move(array) : TakeFrom<DlManagedTensorVersioned>(capsule, is_writable);
}

// Calls `__dlpack__`, without arguments or for a capsule of version 1, which reports whether the
// array is read-only. Returns an empty object, and clears the error, if it fails.
Object CallDlpack(PyObject* object, bool is_versioned) {
  static PyObject* const name = PyUnicode_InternFromString("__dlpack__");
  static PyObject* const keywords = Py_BuildValue("(s)", "max_version");
  static PyObject* const version = Py_BuildValue("(ii)", 1, 0);
  PyObject* const arguments[] = {object, version};
  Object capsule(PyObject_VectorcallMethod(name, arguments, 1, is_versioned ? keywords : nullptr));
  if (!capsule) PyErr_Clear();
  return capsule;
}

std::optional<Array> ImportDlpack(PyObject* object, bool is_writable) {
  // Only a versioned capsule can be writable or not; the other one is made faster. Older libraries
  // have only that, and refuse to make one of a read-only array.
  Object capsule = CallDlpack(object, is_writable);
  if (!capsule) capsule = CallDlpack(object, !is_writable);
  return capsule ? TakeFromCapsule(capsule.get(), is_writable) : std::nullopt;
}

// The code of one element in the syntax of the module `struct`.
std::optional<DataType> ParseFormat(std::string_view format, std::int64_t size) {
  if (!format.empty() && std::string_view("@=<").find(format[0]) != format.npos) {
    format.remove_prefix(1);
  }
  const bool is_complex = format.size() == 2 && format[0] == 'Z';
  if (is_complex) format.remove_prefix(1);
  if (format.size() != 1) return std::nullopt;
  const auto is_one_of = [&](std::string_view codes) {
    return codes.find(format[0]) != codes.npos;
  };
  const std::int64_t bits = 8 * size;
  if (is_one_of("efd")) return ToDataType(is_complex ? kComplex : kFloat, bits);
  if (is_complex) return std::nullopt;
  if (is_one_of("cbhilqn")) return ToDataType(kInt, bits);
  if (is_one_of("BHILQN")) return ToDataType(kUInt, bits);
  return format == "?" ? ToDataType(kBool, bits) : std::nullopt;
}

std::optional<Tensor> ViewOf(const Py_buffer& buffer) {
  const auto type = ParseFormat(buffer.format ? buffer.format : "B", buffer.itemsize);
  if (!type) return std::nullopt;
  const std::vector<std::int64_t> shape(buffer.shape, buffer.shape + buffer.ndim);
  if (!buffer.strides) return Tensor(buffer.buf, shape, *type);  // of ctypes
  std::vector<std::int64_t> strides;
  for (int i = 0; i < buffer.ndim; ++i) {
    if (buffer.strides[i] % buffer.itemsize != 0) return std::nullopt;
    strides.push_back(buffer.strides[i] / buffer.itemsize);
  }
  return Tensor(buffer.buf, shape, strides, *type);
}

std::optional<Array> ImportBuffer(PyObject* object, bool is_writable) {
  auto buffer = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object, buffer.get(), is_writable ? PyBUF_RECORDS : PyBUF_RECORDS_RO)) {
    PyErr_Clear();
    return std::nullopt;
  }
  const auto release = [](void* taken) {
    const std::unique_ptr<Py_buffer> owned(static_cast<Py_buffer*>(taken));
    PyBuffer_Release(owned.get());
  };
  const Py_buffer& taken = *buffer;
  std::unique_ptr<void, void (*)(void*)> owner(buffer.release(), release);
  std::optional<Tensor> view = ViewOf(taken);
  if (!view) return std::nullopt;
  return Array{*std::move(view), std::move(owner)};
}

}  // namespace

std::optional<Array> ImportArray(PyObject* object, bool is_writable) {
  if (PyCapsule_CheckExact(object)) return TakeFromCapsule(object, is_writable);
  std::optional<Array> array = ImportDlpack(object, is_writable);
  if (array || !PyObject_CheckBuffer(object)) return array;
  return ImportBuffer(object, is_writable);
}

}  // namespace infini::ops::bindings
