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
PyObject* ToPython(int number) { return PyLong_FromLong(number); }
// Name, torch's device type, and the torch plug-in that registers the type, or `None`. All of them
// are literals, and so end with a zero.
PyObject* ToPython(const DeviceTypeInfo& info) {
  const char* plugin = info.torch_plugin.empty() ? nullptr : info.torch_plugin.data();
  return Py_BuildValue("(ssz)", info.name.data(), info.torch_device.data(), plugin);
}

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
    {"active_implementation_indices", ActiveImplementationIndices, METH_VARARGS, nullptr},
    {"clear_cache", ClearCache, METH_O, nullptr},
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
