#include "bindings/torch_objects.h"

#include <ATen/core/TensorBase.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "bindings/lock.h"
#include "bindings/python.h"

// From torch/csrc/Exceptions.h, whose inclusion costs 5 CPU-seconds.
namespace torch {
void translate_exception_to_python(const std::exception_ptr& error);
}

namespace infini::ops::bindings {
namespace {

PyTypeObject* tensor_type = nullptr;
// Offset in bytes of the `at::Tensor` in a `torch.Tensor`.
std::size_t tensor_offset = 0;

bool HoldsAt(std::size_t offset, PyObject* tensor) {
  const void* held = *reinterpret_cast<void**>(reinterpret_cast<char*>(tensor) + offset);
  const Object address = Own(PyObject_GetAttrString(tensor, "_cdata"));
  return held == PyLong_AsVoidPtr(address.get());
}

// The struct is in torch/csrc/autograd/python_variable.h, whose inclusion costs 9 CPU-seconds, and
// its layout differs between versions. So the offset is found at run time: `_cdata` is the address
// of the `TensorImpl`, and an `at::Tensor` consists of just a pointer to it.
std::size_t FindTensorOffset(PyObject* torch) {
  const Object empty = Own(PyObject_GetAttrString(torch, "empty"));
  const Object size = Own(Py_BuildValue("(i)", 0));
  // On the CPU, because this machine may not have the default device.
  const Object on_cpu = Own(Py_BuildValue("{s:s}", "device", "cpu"));
  const auto make = [&] { return Own(PyObject_Call(empty.get(), size.get(), on_cpu.get())); };
  const Object tensors[] = {make(), make()};
  const std::size_t end = Py_TYPE(tensors[0].get())->tp_basicsize;
  for (std::size_t offset = sizeof(PyObject); offset < end; offset += sizeof(void*)) {
    if (HoldsAt(offset, tensors[0].get()) && HoldsAt(offset, tensors[1].get())) return offset;
  }
  Throw(PyExc_ImportError,
        "infini.ops can't find the C++ tensor inside a torch.Tensor: the object layout of this "
        "torch is not supported. Build infini.ops with -C cmake.define.WITH_TORCH=OFF.");
}

// Collects the warnings of one call on this thread; they are shown after taking the interpreter
// lock.
class WarningBuffer : public c10::WarningHandler {
 public:
  explicit WarningBuffer(std::vector<c10::Warning>* warnings)
      : previous_(c10::WarningUtils::get_warning_handler()), warnings_(warnings) {
    c10::WarningUtils::set_warning_handler(this);
  }
  ~WarningBuffer() override { c10::WarningUtils::set_warning_handler(previous_); }

  void process(const c10::Warning& warning) override { warnings_->push_back(warning); }

 private:
  c10::WarningHandler* previous_;
  std::vector<c10::Warning>* warnings_;
};

bool Show(const c10::Warning& warning) {
  const bool deprecation = std::holds_alternative<c10::DeprecationWarning>(warning.type());
  PyObject* category = deprecation ? PyExc_DeprecationWarning : PyExc_UserWarning;
  const auto& place = warning.source_location();
  if (warning.verbatim() && place.file) {
    return PyErr_WarnExplicit(category, warning.msg().c_str(), place.file,
                              static_cast<int>(place.line), nullptr, nullptr) == 0;
  }
  std::string text = warning.msg();
  if (place.file) {
    text += " (Triggered internally at " + std::string(place.file) + ":" +
            std::to_string(place.line) + ".)";
  }
  return PyErr_WarnEx(category, text.c_str(), 1) == 0;
}

// Shows warnings as Python warnings. A filter can turn one into an error, which is then set. A
// pending error takes precedence over it.
void ShowAll(const std::vector<c10::Warning>& warnings) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  for (const c10::Warning& warning : warnings) {
    if (Show(warning)) continue;
    if (!type) return;
    PyErr_Clear();
  }
  PyErr_Restore(type, value, traceback);
}

// Owned references to the tensors of a call, used instead of those inside the Python objects.
// Torch's bindings also own theirs. Reasons: some kernels bind an out to another tensor
// (`_add_relu` of mixed types), and while the lock is released another thread can put another C++
// tensor into a `torch.Tensor` (`torch.utils.swap_tensors`). A kernel that copies an `at::Tensor`
// then also does not need the lock, which torch takes for the second reference: 100 ns of `abs`.
class HeldTensors {
 public:
  HeldTensors(Argument* arguments, std::size_t size) {
    std::for_each_n(arguments, size, [this](const Argument& argument) { Hold(argument); });
    // After all tensors are held: until then the vector can move them.
    const at::TensorBase* held = tensors_.data();
    std::for_each_n(arguments, size, [&held](Argument& argument) { Redirect(&argument, &held); });
  }

 private:
  void Hold(const Argument& argument) {
    if (argument.tag == Argument::Tag::kForeignTensor) {
      tensors_.push_back(*argument.As<at::TensorBase>());
    } else if (argument.tag == Argument::Tag::kArguments) {
      std::for_each_n(argument.As<Argument>(), argument.size, [this](const Argument& element) {
        element.tag == Argument::Tag::kNone ? tensors_.push_back({}) : Hold(element);
      });
    }
  }

  // Makes an argument point to the held references to its tensors, and advances `held` past them.
  static void Redirect(Argument* argument, const at::TensorBase** held) {
    if (argument->tag == Argument::Tag::kForeignTensor) {
      argument->pointer = (*held)++;
    } else if (argument->tag == Argument::Tag::kArguments) {
      RedirectList(argument, held);
    }
  }

  // Only a list that contains just torch tensors is passed to torch directly.
  static void RedirectList(Argument* list, const at::TensorBase** held) {
    // It is in the storage of the call, like `list`.
    auto* elements = const_cast<Argument*>(list->As<Argument>());
    if (std::all_of(elements, elements + list->size, IsTorchs)) {
      const at::TensorBase* first = *held;
      *held += list->size;
      *list = Argument::ForeignTensors(first, list->size);
      return;
    }
    std::for_each_n(elements, list->size, [held](Argument& element) {
      element.tag == Argument::Tag::kNone ? static_cast<void>(++*held) : Redirect(&element, held);
    });
  }

  static bool IsTorchs(const Argument& element) {
    return element.tag == Argument::Tag::kForeignTensor || element.tag == Argument::Tag::kNone;
  }

  c10::SmallVector<at::TensorBase, 6> tensors_;
};

// True if a class of Python, such as that of fake tensors, implements torch's dispatch for one of
// the tensors.
bool HasPythonDispatch(const Argument* arguments, std::size_t size) {
  return std::any_of(arguments, arguments + size, [](const Argument& argument) {
    if (argument.tag == Argument::Tag::kArguments) {
      return HasPythonDispatch(argument.As<Argument>(), argument.size);
    }
    const bool is_list = argument.tag == Argument::Tag::kForeignTensors;
    if (!is_list && argument.tag != Argument::Tag::kForeignTensor) return false;
    const auto* tensors = argument.As<at::TensorBase>();
    return std::any_of(tensors, tensors + (is_list ? argument.size : 1), [](const auto& tensor) {
      return tensor.defined() && tensor.key_set().has(c10::DispatchKey::Python);
    });
  });
}

// Runs the call with the interpreter lock released. Exceptions become the current Python error, and
// warnings are added to `warnings`. Returns false, without an error, if the implementation refuses
// the call and torch can dispatch it to a class of Python.
bool DispatchUnlocked(const Overload& overload, Argument* arguments, const CallOptions& options,
                      std::vector<c10::Warning>* warnings) {
  const std::size_t size = overload.parameters.size();
  const HeldTensors held(arguments, size);
  const WarningBuffer buffer(warnings);
  try {
    const ReleasedLock released;
    Dispatch(overload, {arguments, size}, options);
  } catch (const std::invalid_argument& error) {
    // Our own error about the call; torch would turn it into a RuntimeError. Drop torch's warnings,
    // such as one about a resized out: they concern internal tensors.
    warnings->clear();
    if (IsRefusal(error) && HasPythonDispatch(arguments, size)) return false;
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
  }
  return true;
}

}  // namespace

void InitializeTorchObjects() {
  const Object torch = Own(PyImport_ImportModule("torch"));
  tensor_offset = FindTensorOffset(torch.get());
  tensor_type =
      reinterpret_cast<PyTypeObject*>(Own(PyObject_GetAttrString(torch.get(), "Tensor")).release());
}

// Checks the type itself, because objects can override the result of `isinstance`.
const void* UnpackTensor(PyObject* object) {
  if (!PyObject_TypeCheck(object, tensor_type)) return nullptr;
  return reinterpret_cast<const char*>(object) + tensor_offset;
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

PyObject* DispatchWithTorchErrors(const Overload& overload, Argument* arguments,
                                  const CallOptions& options) {
  std::vector<c10::Warning> warnings;
  if (!DispatchUnlocked(overload, arguments, options, &warnings)) Py_RETURN_NOTIMPLEMENTED;
  // After the warning buffer is gone: showing a warning can run Python code that calls torch.
  if (!warnings.empty()) ShowAll(warnings);
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

}  // namespace infini::ops::bindings
