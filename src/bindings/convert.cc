#include "bindings/convert.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>
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

namespace infini::ops::bindings {
namespace {

bool HasLength(PyObject* object) {
  const PyTypeObject* type = Py_TYPE(object);
  return (type->tp_as_sequence && type->tp_as_sequence->sq_length) ||
         (type->tp_as_mapping && type->tp_as_mapping->mp_length);
}

// A number of Python or of another library, such as `numpy.float32(1)`. Arrays also implement the
// number protocol, but they have a length.
bool IsNumber(PyObject* object) {
  // NumPy's complex numbers implement only `__complex__` of the number protocol.
  return !HasLength(object) &&
         (PyNumber_Check(object) || PyObject_HasAttrString(object, "__complex__"));
}

bool IsInteger(PyObject* object) {
  return !PyBool_Check(object) &&
         (PyLong_Check(object) || (PyIndex_Check(object) && IsNumber(object)));
}

std::int64_t ToInteger(PyObject* object) {
  const Object index = Own(PyNumber_Index(object));
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
  // Torch throws the same exception.
  if (overflow) throw std::invalid_argument("an integer does not fit into 64 bits");
  return value;
}

double ToDouble(PyObject* object) {
  const double value = PyFloat_AsDouble(object);
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

bool ConvertInteger(PyObject* object, std::int64_t* value) {
  if (!IsInteger(object)) return false;
  *value = ToInteger(object);
  return true;
}

bool ConvertDouble(PyObject* object, double* value) {
  if (!PyFloat_Check(object) && !PyLong_Check(object) && !IsNumber(object)) return false;
  *value = ToDouble(object);
  return true;
}

// Like torch, also accepts integers that fit only into an unsigned type.
Scalar ToIntegerScalar(PyObject* number) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow == 0) return value;
  const unsigned long long large = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred()) throw PythonError();
  return large;
}

bool ConvertScalar(PyObject* object, Scalar* scalar) {
  if (PyBool_Check(object)) {
    *scalar = object == Py_True;
  } else if (PyFloat_Check(object)) {
    *scalar = PyFloat_AS_DOUBLE(object);
  } else if (PyLong_Check(object)) {
    *scalar = ToIntegerScalar(object);
  } else if (PyComplex_Check(object)) {
    const Py_complex value = PyComplex_AsCComplex(object);
    *scalar = Scalar::Complex(value.real, value.imag);
  } else if (!IsNumber(object)) {
    return false;
  } else if (PyObject_HasAttrString(object, "item")) {
    // NumPy's `item()` returns the Python number of the right type.
    const Object item = Own(PyObject_CallMethod(object, "item", nullptr));
    return Py_TYPE(item.get()) != Py_TYPE(object) && ConvertScalar(item.get(), scalar);
  } else if (PyIndex_Check(object)) {
    *scalar = ToInteger(object);
  } else {
    *scalar = ToDouble(object);
  }
  return true;
}

bool IsArrayLike(PyObject* object) {
  return PyCapsule_CheckExact(object) || PyObject_CheckBuffer(object) ||
         PyObject_HasAttrString(object, "__dlpack__");
}

// Returns the text of the current error and clears it. An error that does not concern the export of
// memory is an error of the object itself, and is thrown.
std::string TakeExportError() {
  if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_TypeError) &&
      !PyErr_ExceptionMatches(PyExc_ValueError)) {
    throw PythonError();
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Object owned[] = {Object(type), Object(value), Object(traceback)};
  const Object text = Own(PyObject_Str(value));
  const char* const why = PyUnicode_AsUTF8(text.get());
  if (!why) throw PythonError();
  return why;
}

// The errors of an object that provides no array were dropped, so ask the object again.
void ExplainRefusal(PyObject* object, CallStorage* storage) {
  if (!IsArrayLike(object)) return;
  std::string why = "no writable array of a known type in host memory";
  if (PyCapsule_CheckExact(object)) {
    why = "a capsule gives its array once, in host memory and of a known type";
  } else if (PyObject_HasAttrString(object, "__dlpack__")) {
    PyObject* capsule = PyObject_CallMethod(object, "__dlpack__", nullptr);
    capsule ? Py_DECREF(capsule) : static_cast<void>(why = TakeExportError());
  }
  storage->AddRefusal(std::string(Py_TYPE(object)->tp_name) + ": " + why);
}

bool ConvertArray(PyObject* object, bool is_out, CallStorage* storage, Argument* argument) {
  if (PyBytes_Check(object) || PyUnicode_Check(object) || IsNumber(object)) return false;
  if (const Tensor* view = storage->FindView(object, is_out)) {
    *argument = *view;
    return true;
  }
  // Make the capsule's view writable, because the next overload may use it as an out.
  const bool is_capsule = PyCapsule_CheckExact(object);
  std::optional<Array> array;
  bool is_writable = is_out || is_capsule;
  if (is_writable) array = ImportArray(object, true);
  if (!array && !is_out) {
    is_writable = false;
    array = ImportArray(object, false);
  }
  if (!array) {
    ExplainRefusal(object, storage);
    return false;
  }
  *argument = storage->AddArray(object, is_writable, *std::move(array));
  return true;
}

bool ConvertTensor(const Parameter& parameter, PyObject* object, CallStorage* storage,
                   Argument* argument) {
  if (const void* tensor = UnpackTensor(object)) {
    *argument = Argument::ForeignTensor(tensor);
    return true;
  }
  return ConvertArray(object, parameter.is_out, storage, argument);
}

bool ConvertString(PyObject* object, Argument* argument) {
  if (!PyUnicode_Check(object)) return false;
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (!text) throw PythonError();
  *argument = std::string_view(text, size);
  return true;
}

// "cpu" or "nvidia:1".
bool ConvertDeviceName(std::string_view name, Argument* argument) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  std::uint8_t index = 0;  // torch's limit is 127
  if (colon < name.size()) {
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + colon + 1, end, index);
    if (error != std::errc() || rest != end || index > 127) return false;
  }
  *argument = Device(ParseDeviceType(name.substr(0, colon)), index);
  return true;
}

// Python's own types represent the dtypes that torch gives to their values.
std::optional<DataType> DataTypeOf(PyObject* type) {
  if (type == reinterpret_cast<PyObject*>(&PyFloat_Type)) return DataType::kFloat64;
  if (type == reinterpret_cast<PyObject*>(&PyLong_Type)) return DataType::kInt64;
  if (type == reinterpret_cast<PyObject*>(&PyBool_Type)) return DataType::kBool;
  if (type == reinterpret_cast<PyObject*>(&PyComplex_Type)) return DataType::kComplex128;
  return std::nullopt;
}

bool ConvertNamedValue(Parameter::Type type, PyObject* object, Argument* argument) {
  if (const std::optional<Argument> value = UnpackValue(type, object)) {
    *argument = *value;
    return true;
  }
  if (type == Parameter::Type::kDataType) {
    if (const std::optional<DataType> data_type = DataTypeOf(object)) {
      *argument = *data_type;
      return true;
    }
  }
  Argument name;
  if (!ConvertString(object, &name)) return false;
  if (type == Parameter::Type::kDataType) {
    // "float32", for callers without torch.
    const std::optional<DataType> data_type = ParseDataType(name.string());
    if (data_type) *argument = *data_type;
    return data_type.has_value();
  }
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
bool ConvertElements(PyObject* list, Function convert, std::vector<T>* values, Argument* argument) {
  const Py_ssize_t size = PyTuple_GET_SIZE(list);
  for (Py_ssize_t i = 0; i < size; ++i) {
    T value;
    if (!convert(PyTuple_GET_ITEM(list, i), &value)) return false;
    values->push_back(value);
  }
  *argument = Span<T>(*values);
  return true;
}

bool ConvertTensors(const Parameter& parameter, PyObject* list, CallStorage* storage,
                    Argument* argument) {
  const auto convert = [&](PyObject* element, Argument* value) {
    if (parameter.has_optional_elements && element == Py_None) return true;
    return ConvertTensor(parameter, element, storage, value);
  };
  const Py_ssize_t size = PyTuple_GET_SIZE(list);
  return ConvertElements<Argument>(list, convert, &storage->AddArguments(size), argument);
}

bool ConvertBooleans(const Parameter& parameter, PyObject* list, CallStorage* storage,
                     Argument* argument) {
  const Py_ssize_t size = PyTuple_GET_SIZE(list);
  if (parameter.list_size != Parameter::kAnySize && size != parameter.list_size) return false;
  bool* values = storage->AddBooleans(size);
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* element = PyTuple_GET_ITEM(list, i);
    if (!PyBool_Check(element)) return false;
    values[i] = element == Py_True;
  }
  *argument = Span<bool>(values, size);
  return true;
}

// A single number for a list of fixed size applies to all of its elements, as in torch.
void Repeat(std::int64_t value, const Parameter& parameter, CallStorage* storage,
            Argument* argument) {
  std::vector<std::int64_t>& values = storage->AddIntegers(parameter.list_size);
  values.assign(parameter.list_size, value);
  *argument = Span<std::int64_t>(values);
}

// Some parameters accept an empty list as a default that depends on other parameters: an empty
// `stride` is the kernel size.
bool MayBeEmpty(const Parameter& parameter) {
  const bool is_default = parameter.has_default && parameter.default_value.size == 0;
  return is_default || std::string_view(parameter.name) == "stride";
}

// Checks the length of a list of two or more, because some kernels of torch read that many elements
// without a check. For a size of 1, torch accepts any length (`dim` for instance).
bool ConvertIntegers(const Parameter& parameter, PyObject* list, CallStorage* storage,
                     Argument* argument) {
  const std::size_t size = PyTuple_GET_SIZE(list);
  const std::size_t expected = std::max<std::int8_t>(parameter.list_size, 0);
  std::vector<std::int64_t>& values = storage->AddIntegers(size);
  if (!ConvertElements(list, ConvertInteger, &values, argument)) return false;
  if (expected < 2 || size == expected || (size == 0 && MayBeEmpty(parameter))) return true;
  if (size == 1) {
    Repeat(argument->As<std::int64_t>()[0], parameter, storage, argument);
    return true;
  }
  storage->AddRefusal(std::string(parameter.name) + ": expected " + std::to_string(expected) +
                      " integers, got " + std::to_string(size));
  return false;
}

bool ConvertList(const Parameter& parameter, PyObject* list, CallStorage* storage,
                 Argument* argument) {
  const std::size_t size = PyTuple_GET_SIZE(list);
  switch (parameter.type) {
    case Parameter::Type::kTensor:
      return ConvertTensors(parameter, list, storage, argument);
    case Parameter::Type::kInt:
      return ConvertIntegers(parameter, list, storage, argument);
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

// A single number instead of a list.
bool ConvertRepeated(const Parameter& parameter, PyObject* object, CallStorage* storage,
                     Argument* argument) {
  std::int64_t value;
  if (parameter.type != Parameter::Type::kInt || parameter.list_size == Parameter::kAnySize ||
      !ConvertInteger(object, &value)) {
    return false;
  }
  Repeat(value, parameter, storage, argument);
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
    // Copy into a tuple: converting an element can run code that changes the list.
    return ConvertList(parameter, storage->Hold(Own(PySequence_Tuple(object))), storage, argument);
  }
  return ConvertRepeated(parameter, object, storage, argument);
}

}  // namespace infini::ops::bindings
