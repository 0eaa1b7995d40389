#include <Python.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/operator_function.h"
#include "bindings/python.h"
#include "infini/ops/operator.h"

#ifdef INFINI_OPS_WITH_TORCH
#include "bindings/torch_objects.h"
#endif

namespace infini::ops::bindings {
namespace {

// The text of a `str`.
std::string_view TextOf(PyObject* object) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (!text) throw PythonError();
  return {text, static_cast<std::size_t>(size)};
}

PyObject* ToPython(std::string_view text) {
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}
PyObject* ToPython(std::int64_t number) { return PyLong_FromLongLong(number); }
// Name, torch's device type, and the torch plug-in that registers the type, or `None`. All of them
// are literals, and so end with a zero.
PyObject* ToPython(const DeviceTypeInfo& info) {
  const char* plugin = info.torch_plugin.empty() ? nullptr : info.torch_plugin.data();
  return Py_BuildValue("(ssz)", info.name.data(), info.torch_device.data(), plugin);
}

PyObject* ToPython(const Parameter& parameter);
PyObject* ToPython(const Overload& overload);

template <typename Values>
PyObject* ToList(const Values& values) {
  Object list = Own(PyList_New(0));
  for (const auto& value : values) {
    if (PyList_Append(list.get(), Own(ToPython(value)).get()) != 0) throw PythonError();
  }
  return list.release();
}

PyObject* OperatorNames(PyObject*, PyObject*) {
  return Guarded([] {
    std::vector<std::string_view> names;
    for (const auto& [name, entry] : Operators()) names.push_back(name);
    return ToList(names);
  });
}

PyObject* FunctionOf(PyObject*, PyObject* name) {
  return Guarded([&] { return MakeOperatorFunction(TextOf(name)).release(); });
}

PyObject* SetTraceable(PyObject*, PyObject* function) {
  return Guarded([&] {
    SetTraceableCall(function);
    Py_RETURN_NONE;
  });
}

// For one of `Operators()`; empty for a platform that the library was not built for.
std::vector<int> ActiveSlots(std::string_view name, std::string_view device) {
  const OperatorEntry& entry = FindOperator(name);
  bool is_known = false;
  std::string known;
  std::string enabled;
  for (const DeviceTypeInfo& info : kDeviceTypes) {
    if (device == info.name || device == info.torch_device) {
      if (IsEnabled(info.type)) return entry.ActiveSlots(info.type);
      is_known = true;
    }
    known += (known.empty() ? "" : ", ") + std::string(info.name);
    if (IsEnabled(info.type)) enabled += (enabled.empty() ? "" : ", ") + std::string(info.name);
  }
  if (is_known) return {};
  throw std::invalid_argument("unknown device '" + std::string(device) + "'; expected one of " +
                              known +
                              ", or torch's name of its device; this build has: " + enabled);
}

PyObject* ActiveImplementationIndices(PyObject*, PyObject* arguments) {
  return Guarded([&]() -> PyObject* {
    PyObject *name, *device;
    if (!PyArg_ParseTuple(arguments, "UU", &name, &device)) return nullptr;
    return ToList(ActiveSlots(TextOf(name), TextOf(device)));
  });
}

PyObject* ClearCache(PyObject*, PyObject* name) {
  return Guarded([&] {
    FindOperator(TextOf(name)).ClearCache();
    Py_RETURN_NONE;
  });
}

// Operator, overload, device and slot; `None` before the first call on this thread.
PyObject* LastCallAsTuple(PyObject*, PyObject*) {
  const Call& call = LastCall();
  if (!call.overload) Py_RETURN_NONE;
  return Py_BuildValue("(sssi)", call.overload->operator_name, call.overload->name,
                       Info(call.device).name.data(), call.slot);
}

// A default as a value of Python. Defaults are numbers, strings, `None` and lists of integers.
PyObject* ToPython(const Argument& value) {
  switch (value.tag) {
    case Argument::Tag::kScalar:
    case Argument::Tag::kEnumeration:
      switch (value.scalar.kind()) {
        case Scalar::Kind::kBool:
          return PyBool_FromLong(value.scalar.To<bool>());
        case Scalar::Kind::kDouble:
          return PyFloat_FromDouble(value.scalar.To<double>());
        default:
          return PyLong_FromLongLong(value.scalar.To<std::int64_t>());
      }
    case Argument::Tag::kString:
      return ToPython(value.string());
    case Argument::Tag::kIntegers:
      return ToList(Span<std::int64_t>(value.As<std::int64_t>(), value.size));
    default:
      Py_RETURN_NONE;
  }
}

// Name, type by its number, size of a list or -1, three flags, and a tuple of the default, if any.
PyObject* ToPython(const Parameter& parameter) {
  const Object value = parameter.has_default
                           ? Own(Py_BuildValue("(N)", ToPython(parameter.default_value)))
                           : Own(PyTuple_New(0));
  return Py_BuildValue("(siiiiiO)", parameter.name, static_cast<int>(parameter.type),
                       parameter.list_size, parameter.is_optional, parameter.has_optional_elements,
                       parameter.is_out, value.get());
}

PyObject* ToPython(const Overload& overload) { return ToList(overload.parameters); }

// The parameters of each overload of an operator. The tests compare them with the signatures, which
// are texts of the generator.
PyObject* Parameters(PyObject*, PyObject* name) {
  return Guarded([&] { return ToList(FindOperator(TextOf(name)).overloads); });
}

PyObject* Devices(PyObject*, PyObject*) {
  return Guarded([] {
    std::vector<std::string_view> names;
    for (const DeviceTypeInfo& info : kDeviceTypes) {
      if (IsEnabled(info.type)) names.push_back(info.name);
    }
    return ToList(names);
  });
}

PyObject* Platforms(PyObject*, PyObject*) {
  return Guarded([] { return ToList(kDeviceTypes); });
}

PyMethodDef functions[] = {
    {"operator_names", OperatorNames, METH_NOARGS, nullptr},
    {"operator_function", FunctionOf, METH_O, nullptr},
    {"set_traceable_call", SetTraceable, METH_O, nullptr},
    {"active_implementation_indices", ActiveImplementationIndices, METH_VARARGS, nullptr},
    {"clear_cache", ClearCache, METH_O, nullptr},
    {"parameters", Parameters, METH_O, nullptr},
    {"devices", Devices, METH_NOARGS, nullptr},
    {"platforms", Platforms, METH_NOARGS, nullptr},
    {"last_call", LastCallAsTuple, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "infini.ops._core",
                          nullptr,
                          -1,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

PyObject* MakeModule() {
  return Guarded([] {
    Object module = Own(PyModule_Create(&definition));
    InitializeOperatorFunction(module.get());
#ifdef INFINI_OPS_WITH_TORCH
    InitializeTorchObjects();
#endif
    return module.release();
  });
}

}  // namespace infini::ops::bindings

PyMODINIT_FUNC PyInit__core() { return infini::ops::bindings::MakeModule(); }
