#include "bindings/torch_objects.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>

#include <stdexcept>

#include "bindings/lock.h"
#include "torch/foreign.h"

namespace infini::ops::bindings {

// Not `THPVariable_Check`: that asks `isinstance`, which an object can answer as it likes.
const void* UnpackTensor(PyObject* object) {
  auto* type = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  return type && PyObject_TypeCheck(object, type) ? &THPVariable_Unpack(object) : nullptr;
}

const void* UnpackGenerator(PyObject* object) {
  if (!THPGenerator_Check(object)) return nullptr;
  return &reinterpret_cast<THPGenerator*>(object)->cdata;
}

std::optional<Argument> UnpackValue(Parameter::Type type, PyObject* object) {
  switch (type) {
    case Parameter::Type::kDataType:
      if (!THPDtype_Check(object)) break;
      return static_cast<DataType>(reinterpret_cast<THPDtype*>(object)->scalar_type);
    case Parameter::Type::kLayout:
      if (!THPLayout_Check(object)) break;
      return static_cast<Layout>(reinterpret_cast<THPLayout*>(object)->layout);
    case Parameter::Type::kMemoryFormat:
      if (!THPMemoryFormat_Check(object)) break;
      return static_cast<MemoryFormat>(reinterpret_cast<THPMemoryFormat*>(object)->memory_format);
    case Parameter::Type::kDevice: {
      if (!THPDevice_Check(object)) break;
      const at::Device device = reinterpret_cast<THPDevice*>(object)->device;
      return Device(ParseDeviceType(c10::DeviceTypeName(device.type(), true)),
                    device.has_index() ? device.index() : 0);
    }
    default:
      break;
  }
  return std::nullopt;
}

PyObject* DispatchWithTorchErrors(const Overload& overload, Span<Argument> arguments,
                                  const CallOptions& options) {
  HANDLE_TH_ERRORS
  try {
    const ReleasedLock released;
    Dispatch(overload, arguments, options);
  } catch (const std::invalid_argument& error) {
    // Our own complaint about the call; torch would make a RuntimeError of it.
    C10_THROW_ERROR(ValueError, error.what());
  }
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

}  // namespace infini::ops::bindings
