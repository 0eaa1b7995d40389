#include "bindings/convert.h"

#include <string>

#ifdef INFINI_OPS_WITH_TORCH
#include "bindings/torch_objects.h"
#else
namespace infini::ops::bindings {
static const void* UnpackTensor(PyObject*) { return nullptr; }
static const void* UnpackGenerator(PyObject*) { return nullptr; }
static std::optional<Argument> UnpackValue(Parameter::Type, PyObject*) { return std::nullopt; }
}  // namespace infini::ops::bindings
#endif

namespace nb = nanobind;

namespace infini::ops::bindings {
namespace {

// A number that is not one of Python's own, such as `numpy.float32(1)`; arrays and tensors
// have the number protocol too, but are sequences.
bool IsForeignNumber(PyObject* object) {
  return PyNumber_Check(object) && !PySequence_Check(object) && !UnpackTensor(object);
}

bool IsInteger(PyObject* object) {
  return !PyBool_Check(object) &&
         (PyLong_Check(object) || (PyIndex_Check(object) && IsForeignNumber(object)));
}

std::int64_t ToInteger(PyObject* object) {
  const long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return value;
}

double ToDouble(PyObject* object) {
  const double value = PyFloat_AsDouble(object);
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return value;
}

bool ConvertScalar(PyObject* object, Scalar* scalar) {
  if (PyBool_Check(object)) {
    *scalar = object == Py_True;
  } else if (PyFloat_Check(object)) {
    *scalar = PyFloat_AS_DOUBLE(object);
  } else if (IsInteger(object)) {
    *scalar = ToInteger(nb::steal(PyNumber_Index(object)).ptr());
  } else if (PyComplex_Check(object)) {
    const Py_complex value = PyComplex_AsCComplex(object);
    *scalar = std::complex<double>(value.real, value.imag);
  } else if (IsForeignNumber(object)) {
    *scalar = ToDouble(object);
  } else {
    return false;
  }
  return true;
}

bool ConvertInteger(PyObject* object, std::int64_t* value) {
  if (!IsInteger(object)) return false;
  *value = ToInteger(PyLong_CheckExact(object) ? object : nb::steal(PyNumber_Index(object)).ptr());
  return true;
}

bool ConvertDouble(PyObject* object, double* value) {
  if (PyBool_Check(object)) return false;
  if (!PyFloat_Check(object) && !PyLong_Check(object) && !IsForeignNumber(object)) return false;
  *value = ToDouble(object);
  return true;
}

std::optional<DataType> ToDataType(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  if (type.lanes != 1) return std::nullopt;
  for (int i = 0; i <= static_cast<int>(DataType::kUInt64); ++i) {
    const auto candidate = static_cast<DataType>(i);
    if (DataTypeSize(candidate) * 8 != type.bits) continue;
    const std::string_view name = DataTypeName(candidate);
    const auto starts_with = [&](std::string_view start) { return name.rfind(start, 0) == 0; };
    const auto code = static_cast<Code>(type.code);
    if ((code == Code::Int && starts_with("int")) || (code == Code::UInt && starts_with("uint")) ||
        (code == Code::Float && starts_with("float") && !starts_with("float8")) ||
        (code == Code::Bfloat && starts_with("bfloat")) ||
        (code == Code::Complex && starts_with("complex")) ||
        (code == Code::Bool && starts_with("bool"))) {
      return candidate;
    }
  }
  return std::nullopt;
}

// An array of another library in host memory, through DLPack or the buffer protocol.
template <typename Array>
bool ConvertArray(PyObject* object, CallStorage* storage, Argument* argument) {
  if (PyBytes_Check(object) || PyUnicode_Check(object)) return false;
  Array array;
  if (!nb::try_cast(nb::handle(object), array) || array.device_type() != nb::device::cpu::value) {
    return false;
  }
  const std::optional<DataType> type = ToDataType(array.dtype());
  if (!type) return false;
  const std::vector<std::int64_t> shape(array.shape_ptr(), array.shape_ptr() + array.ndim());
  const std::vector<std::int64_t> strides(array.stride_ptr(), array.stride_ptr() + array.ndim());
  void* data = const_cast<void*>(static_cast<const void*>(array.data()));
  *argument = storage->AddView(nb::ndarray<nb::ro>(array), Tensor(data, shape, strides, *type));
  return true;
}

bool ConvertTensor(const Parameter& parameter, PyObject* object, CallStorage* storage,
                   Argument* argument) {
  if (const void* tensor = UnpackTensor(object)) {
    *argument = Argument::ForeignTensor(tensor);
    return true;
  }
  if (PyLong_Check(object) || PyFloat_Check(object)) return false;
  return parameter.is_out ? ConvertArray<nb::ndarray<>>(object, storage, argument)
                          : ConvertArray<nb::ndarray<nb::ro>>(object, storage, argument);
}

bool ConvertString(PyObject* object, Argument* argument) {
  if (!PyUnicode_Check(object)) return false;
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (!text) throw nb::python_error();
  *argument = std::string_view(text, size);
  return true;
}

// "float32", for callers without torch.
bool ConvertDataTypeName(std::string_view name, Argument* argument) {
  for (int i = 0; i <= static_cast<int>(DataType::kUInt64); ++i) {
    const auto candidate = static_cast<DataType>(i);
    if (name != DataTypeName(candidate) || name == "unknown") continue;
    *argument = candidate;
    return true;
  }
  return false;
}

// "cpu" or "nvidia:1".
bool ConvertDeviceName(std::string_view name, Argument* argument) {
  const std::size_t colon = name.find(':');
  const int index = colon == name.npos ? 0 : std::stoi(std::string(name.substr(colon + 1)));
  *argument = Device(ParseDeviceType(name.substr(0, colon)), index);
  return true;
}

bool ConvertNamedValue(Parameter::Type type, PyObject* object, Argument* argument) {
  if (const std::optional<Argument> value = UnpackValue(type, object)) {
    *argument = *value;
    return true;
  }
  Argument name;
  if (!ConvertString(object, &name)) return false;
  if (type == Parameter::Type::kDataType) return ConvertDataTypeName(name.string(), argument);
  return type == Parameter::Type::kDevice && ConvertDeviceName(name.string(), argument);
}

bool ConvertElement(const Parameter& parameter, PyObject* object, CallStorage* storage,
                    Argument* argument) {
  switch (parameter.type) {
    case Parameter::Type::kTensor:
      return ConvertTensor(parameter, object, storage, argument);
    case Parameter::Type::kScalar: {
      Scalar scalar;
      if (!ConvertScalar(object, &scalar)) return false;
      *argument = scalar;
      return true;
    }
    case Parameter::Type::kInt: {
      std::int64_t value;
      if (!ConvertInteger(object, &value)) return false;
      *argument = value;
      return true;
    }
    case Parameter::Type::kFloat: {
      double value;
      if (!ConvertDouble(object, &value)) return false;
      *argument = value;
      return true;
    }
    case Parameter::Type::kBool:
      if (!PyBool_Check(object)) return false;
      *argument = object == Py_True;
      return true;
    case Parameter::Type::kString:
      return ConvertString(object, argument);
    case Parameter::Type::kGenerator: {
      const void* generator = UnpackGenerator(object);
      if (!generator) return false;
      *argument = Argument::ForeignGenerator(generator);
      return true;
    }
    default:
      return ConvertNamedValue(parameter.type, object, argument);
  }
}

template <typename T, typename Function>
bool ConvertElements(nb::handle list, Function convert, std::vector<T>* values,
                     Argument* argument) {
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(list.ptr());
  for (Py_ssize_t i = 0; i < size; ++i) {
    T value;
    if (!convert(PySequence_Fast_GET_ITEM(list.ptr(), i), &value)) return false;
    values->push_back(value);
  }
  *argument = Span<T>(*values);
  return true;
}

bool ConvertTensors(const Parameter& parameter, nb::handle list, CallStorage* storage,
                    Argument* argument) {
  const auto convert = [&](PyObject* element, Argument* value) {
    if (parameter.has_optional_elements && element == Py_None) return true;
    storage->Hold(element);
    return ConvertTensor(parameter, element, storage, value);
  };
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(list.ptr());
  return ConvertElements<Argument>(list, convert, &storage->AddArguments(size), argument);
}

bool ConvertBooleans(const Parameter& parameter, nb::handle list, CallStorage* storage,
                     Argument* argument) {
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(list.ptr());
  if (parameter.list_size != Parameter::kAnySize && size != parameter.list_size) return false;
  bool* values = storage->AddBooleans(size);
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* element = PySequence_Fast_GET_ITEM(list.ptr(), i);
    if (!PyBool_Check(element)) return false;
    values[i] = element == Py_True;
  }
  *argument = Span<bool>(values, size);
  return true;
}

bool ConvertList(const Parameter& parameter, nb::handle list, CallStorage* storage,
                 Argument* argument) {
  const std::size_t size = PySequence_Fast_GET_SIZE(list.ptr());
  switch (parameter.type) {
    case Parameter::Type::kTensor:
      return ConvertTensors(parameter, list, storage, argument);
    case Parameter::Type::kInt:
      return ConvertElements(list, ConvertInteger, &storage->AddIntegers(size), argument);
    case Parameter::Type::kFloat:
      return ConvertElements(list, ConvertDouble, &storage->AddDoubles(size), argument);
    case Parameter::Type::kScalar:
      return ConvertElements(list, ConvertScalar, &storage->AddScalars(size), argument);
    case Parameter::Type::kBool:
      return ConvertBooleans(parameter, list, storage, argument);
    default:
      return false;
  }
}

// One number for a list of fixed size stands for all of its elements, as in torch.
bool ConvertRepeated(const Parameter& parameter, PyObject* object, CallStorage* storage,
                     Argument* argument) {
  std::int64_t value;
  if (parameter.type != Parameter::Type::kInt || parameter.list_size == Parameter::kAnySize ||
      !ConvertInteger(object, &value)) {
    return false;
  }
  std::vector<std::int64_t>& values = storage->AddIntegers(parameter.list_size);
  values.assign(parameter.list_size, value);
  *argument = Span<std::int64_t>(values);
  return true;
}

}  // namespace

bool Convert(const Parameter& parameter, PyObject* object, CallStorage* storage,
             Argument* argument) {
  if (object == Py_None) {
    *argument = Argument();
    return parameter.is_optional;
  }
  if (!parameter.is_list()) return ConvertElement(parameter, object, storage, argument);
  if (PyList_Check(object) || PyTuple_Check(object)) {
    return ConvertList(parameter, nb::handle(object), storage, argument);
  }
  return ConvertRepeated(parameter, object, storage, argument);
}

}  // namespace infini::ops::bindings
