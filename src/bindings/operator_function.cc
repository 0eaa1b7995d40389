#include "bindings/operator_function.h"

#include <Python.h>
#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>

#include "bindings/call_storage.h"
#include "bindings/convert.h"
#include "bindings/lock.h"
#include "bindings/python.h"
#include "infini/ops/operator.h"

#ifdef INFINI_OPS_WITH_TORCH
#include "bindings/torch_objects.h"
#endif

namespace infini::ops::bindings {
namespace {

struct OperatorFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  const OperatorEntry* entry;

  const char* name() const { return entry->overloads.front().operator_name; }
};

// A Python function with the parameters of `__call__`; nullptr until `SetTraceableCall`.
PyObject* traceable_call = nullptr;
PyObject* implementation_index_name = nullptr;
PyObject* stream_name = nullptr;

bool SameString(PyObject* a, PyObject* b) {
  return a == b || PyUnicode_Compare(a, b) == 0;  // keyword names are interned: mostly `a == b`
}

// The Python side of a call, as the vectorcall protocol passes it.
struct PythonCall {
  PyObject* const* arguments;
  std::size_t positional;
  PyObject* keyword_names;  // a tuple, or nullptr
  CallOptions options;

  std::size_t keywords() const { return keyword_names ? PyTuple_GET_SIZE(keyword_names) : 0; }
  PyObject* keyword(std::size_t index) const { return PyTuple_GET_ITEM(keyword_names, index); }
  PyObject* keyword_value(std::size_t index) const { return arguments[positional + index]; }

  bool IsOption(std::size_t index) const {
    return SameString(keyword(index), implementation_index_name) ||
           SameString(keyword(index), stream_name);
  }
};

// PyLong_AsInt of Python 3.13. Can leave an error set.
int ToInt(PyObject* number) {
  const long value = PyLong_AsLong(number);
  const int narrow = static_cast<int>(value);
  if (narrow != value) {
    PyErr_SetString(PyExc_OverflowError, "Python int too large to convert to C int");
  }
  return narrow;
}

void ReadOptions(PythonCall* call) {
  for (std::size_t i = 0; i < call->keywords(); ++i) {
    if (!call->IsOption(i)) continue;
    PyObject* value = call->keyword_value(i);
    const bool is_stream = SameString(call->keyword(i), stream_name);
    if (value == Py_None) continue;
    if (!PyIndex_Check(value) || PyBool_Check(value)) {
      Throw(PyExc_TypeError, is_stream
                                 ? "stream: expected an int, the vendor's stream handle, or None"
                                 : "implementation_index: expected an int or None");
    }
    const Object number = Own(PyNumber_Index(value));
    if (is_stream) {
      call->options.stream = PyLong_AsVoidPtr(number.get());
    } else {
      call->options.implementation_index = ToInt(number.get());
    }
    if (PyErr_Occurred()) throw PythonError();
  }
}

// Assigns the values of a call to the parameters of one overload. Keywords are assigned by name. Of
// the positional values, the last ones go to the outs and the first ones to the inputs, so that a
// call can omit trailing inputs with defaults.
class Binder {
 public:
  Binder(const Overload& overload, const PythonCall& call)
      : parameters_(overload.parameters), call_(call) {}

  bool Bind(PyObject** values) const {
    std::fill_n(values, parameters_.size(), nullptr);
    std::size_t given_by_name = 0;
    for (std::size_t i = 0; i < call_.keywords(); ++i) {
      if (call_.IsOption(i)) continue;
      const std::size_t index = IndexOf(call_.keyword(i));
      if (index == parameters_.size()) return false;
      values[index] = call_.keyword_value(i);
      ++given_by_name;
    }
    if (call_.positional + given_by_name > parameters_.size()) return false;
    return BindPositions(values);
  }

 private:
  std::size_t IndexOf(PyObject* name) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (PyUnicode_CompareWithASCIIString(name, parameters_[i].name) == 0) return i;
    }
    return parameters_.size();
  }

  bool BindPositions(PyObject** values) const {
    std::size_t first_out = parameters_.size();
    std::size_t outs = 0;
    while (first_out > 0 && parameters_[first_out - 1].is_out) {
      --first_out;
      outs += !values[first_out] && !parameters_[first_out].has_default;
    }
    if (call_.positional < outs) return false;
    std::size_t next = 0;
    const std::size_t inputs = call_.positional - outs;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (values[i]) {
        // Given by name. Positional inputs must come before inputs given by name.
        if (i < first_out && next < inputs) return false;
      } else if ((i >= first_out && !parameters_[i].has_default) || next < inputs) {
        if (parameters_[i].is_keyword_only) return false;
        values[i] = call_.arguments[next++];
      }
    }
    return next == call_.positional;
  }

  Span<Parameter> parameters_;
  const PythonCall& call_;
};

bool Match(const Overload& overload, const PythonCall& call, CallStorage* storage) {
  PyObject* values[kMaxParameters];
  if (!Binder(overload, call).Bind(values)) return false;
  for (std::size_t i = 0; i < overload.parameters.size(); ++i) {
    const Parameter& parameter = overload.parameters[i];
    Argument* argument = &(*storage)[i];
    if (!values[i]) {
      if (!parameter.has_default) return false;
      *argument = parameter.default_value;
    } else if (!Convert(parameter, values[i], storage, argument)) {
      return false;
    }
  }
  return true;
}

std::string KeywordText(PyObject* name) {
  // A keyword can contain characters that have no UTF-8 encoding.
  const Object text = Own(PyUnicode_AsEncodedString(name, "utf-8", "backslashreplace"));
  return PyBytes_AS_STRING(text.get());
}

[[noreturn]] void ThrowNoMatch(const OperatorFunction& function, const PythonCall& call,
                               const CallStorage& storage) {
  std::string text = std::string(function.name()) + "(): no overload takes (";
  const char* separator = "";
  for (std::size_t i = 0; i < call.positional + call.keywords(); ++i) {
    text += separator;
    separator = ", ";
    if (i >= call.positional) {
      text += KeywordText(call.keyword(i - call.positional)) + '=';
    }
    text += Py_TYPE(call.arguments[i])->tp_name;
  }
  text += "); candidates:";
  for (const Overload& overload : function.entry->overloads) {
    text += "\n  " + Signature(overload);
  }
  if (!storage.refusals().empty()) text += "\nnot taken:" + storage.refusals();
  Throw(PyExc_TypeError, text);
}

PyObject* Run(const Overload& overload, const CallOptions& options, CallStorage* storage) {
#ifdef INFINI_OPS_WITH_TORCH
  return DispatchWithTorchErrors(overload, storage->arguments(), options);
#else
  {
    const ReleasedLock released;
    Dispatch(overload, {storage->arguments(), overload.parameters.size()}, options);
  }
  Py_RETURN_NONE;
#endif
}

PyObject* CallOperator(const OperatorFunction& function, PythonCall* call) {
  if (call->keyword_names) ReadOptions(call);
  CallStorage storage;
  for (const Overload& overload : function.entry->overloads) {
    if (Match(overload, *call, &storage)) return Run(overload, call->options, &storage);
  }
  ThrowNoMatch(function, *call, storage);
}

// Passes a call on tensors without memory, such as fake tensors, to torch's dispatcher.
PyObject* CallTraceable(PyObject* self, const PythonCall& call) {
  std::vector<PyObject*> arguments{self};
  arguments.insert(arguments.end(), call.arguments,
                   call.arguments + call.positional + call.keywords());
  return PyObject_Vectorcall(traceable_call, arguments.data(), call.positional + 1,
                             call.keyword_names);
}

PyObject* VectorCall(PyObject* self, PyObject* const* arguments, std::size_t flagged_count,
                     PyObject* keyword_names) {
  return Guarded([&] {
    PythonCall call{
        arguments, static_cast<std::size_t>(PyVectorcall_NARGS(flagged_count)), keyword_names, {}};
    PyObject* result = CallOperator(*reinterpret_cast<OperatorFunction*>(self), &call);
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
    return CallTraceable(self, call);
  });
}

PyObject* Name(PyObject* self, void*) {
  return PyUnicode_FromString(reinterpret_cast<OperatorFunction*>(self)->name());
}

// Functions are pickled and copied by name.
PyObject* Reduce(PyObject* self, PyObject*) { return Name(self, nullptr); }

PyObject* Represent(PyObject* self) {
  return PyUnicode_FromFormat("<operator infini.ops.%s>",
                              reinterpret_cast<OperatorFunction*>(self)->name());
}

// "input" or "values, indices".
std::string WrittenNames(const OperatorEntry& entry) {
  std::vector<std::string_view> names;
  std::string text;
  for (const Overload& overload : entry.overloads) {
    for (const Parameter& parameter : overload.parameters) {
      const bool known = std::find(names.begin(), names.end(), parameter.name) != names.end();
      if (!parameter.is_out || known) continue;
      names.emplace_back(parameter.name);
      text += (text.empty() ? "" : ", ") + std::string(parameter.name);
    }
  }
  return text;
}

PyObject* Document(PyObject* self, void*) {
  const auto& function = *reinterpret_cast<OperatorFunction*>(self);
  std::string text;
  for (const Overload& overload : function.entry->overloads) {
    text += Signature(overload) + "\n";
  }
  text +=
      "\nWrites into: " + WrittenNames(*function.entry) + ".\n" +
      "Inputs come first, then the outs. A call can omit inputs with defaults before the outs.\n"
      "All parameters can be passed by keyword. Two further keywords:\n"
      "  implementation_index: a slot; None (default) is the fastest that supports the call\n"
      "  stream: the vendor's stream handle; 0 (default) is the current stream\n\n";
  for (const DeviceTypeInfo& info : kDeviceTypes) {
    if (!IsEnabled(info.type)) continue;
    text += "Active slots on " + std::string(info.name) + ": " +
            JoinSlots(function.entry->ActiveSlots(info.type)) + "\n";
  }
  return PyUnicode_FromString(text.c_str());
}

PyGetSetDef properties[] = {
    {"__name__", Name, nullptr, nullptr, nullptr},
    {"__qualname__", Name, nullptr, nullptr, nullptr},
    {"__doc__", Document, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

// The slot that a call with these arguments would run; `None` if no implementation supports it.
PyObject* SlotFor(PyObject* self, PyObject* const* arguments, Py_ssize_t positional,
                  PyObject* keyword_names) {
  return Guarded([&]() -> PyObject* {
    PythonCall call{arguments, static_cast<std::size_t>(positional), keyword_names, {}};
    if (keyword_names) ReadOptions(&call);
    CallStorage storage;
    for (const Overload& overload : reinterpret_cast<OperatorFunction*>(self)->entry->overloads) {
      if (!Match(overload, call, &storage)) continue;
      const std::optional<int> slot =
          FindSlot(overload, {storage.arguments(), overload.parameters.size()}, call.options);
      if (slot) return PyLong_FromLong(*slot);
      break;  // a call tries no other overload either
    }
    Py_RETURN_NONE;
  });
}

PyMethodDef methods[] = {
    {"slot_for", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(SlotFor)),
     METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"__reduce__", Reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OperatorFunction, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_repr, reinterpret_cast<void*>(Represent)},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec spec = {
    "infini.ops.OperatorFunction",
    sizeof(OperatorFunction),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    slots,
};

PyTypeObject* operator_function_type = nullptr;

}  // namespace

void InitializeOperatorFunction(PyObject* module) {
  implementation_index_name = Own(PyUnicode_InternFromString("implementation_index")).release();
  stream_name = Own(PyUnicode_InternFromString("stream")).release();
  operator_function_type = reinterpret_cast<PyTypeObject*>(Own(PyType_FromSpec(&spec)).release());
  if (PyModule_AddType(module, operator_function_type) != 0) throw PythonError();
}

void SetTraceableCall(PyObject* function) {
  Py_INCREF(function);
  traceable_call = function;
  // Torch looks `__call__` up in the type and traces it. Calls of Python use the vectorcall: a
  // plain assignment to the attribute would replace it by this function.
  if (PyDict_SetItemString(operator_function_type->tp_dict, "__call__", function) != 0) {
    throw PythonError();
  }
  PyType_Modified(operator_function_type);
}

Object MakeOperatorFunction(std::string_view name) {
  const OperatorEntry& entry = FindOperator(name);
  for (const Overload& overload : entry.overloads) {
    if (overload.parameters.size() > kMaxParameters) {
      throw std::logic_error("too many parameters: raise kMaxParameters");
    }
  }
  auto* function = PyObject_New(OperatorFunction, operator_function_type);
  if (!function) throw PythonError();
  function->vectorcall = VectorCall;
  function->entry = &entry;
  return Object(reinterpret_cast<PyObject*>(function));
}

}  // namespace infini::ops::bindings
