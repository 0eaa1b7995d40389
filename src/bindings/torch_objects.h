#ifndef INFINI_OPS_BINDINGS_TORCH_OBJECTS_H_
#define INFINI_OPS_BINDINGS_TORCH_OBJECTS_H_

#include <Python.h>

#include <optional>

#include "infini/ops/operator.h"

// Everything that needs torch's Python headers, which are included by `torch_objects.cc` alone.
namespace infini::ops::bindings {

// To be called once, before all else. Imports torch; throws `nanobind::import_error` for one
// whose tensors can't be read.
void InitializeTorchObjects();

// The `at::Tensor` inside a `torch.Tensor`; nullptr for any other object. Borrowed from the
// object.
const void* UnpackTensor(PyObject* object);

// The `at::Generator` inside a `torch.Generator`; nullptr for any other object.
const void* UnpackGenerator(PyObject* object);

// The value of a `torch.dtype`, `torch.layout`, `torch.memory_format` or `torch.device`
// where `type` asks for it; empty for any other object.
std::optional<Argument> UnpackValue(Parameter::Type type, PyObject* object);

// Dispatches with the interpreter lock released; `arguments` are the overload's and change. C++
// exceptions become the Python exceptions that torch makes of them, and torch's warnings Python
// warnings. Returns a new reference to `None`, or nullptr with the error set.
PyObject* DispatchWithTorchErrors(const Overload& overload, Argument* arguments,
                                  const CallOptions& options);

}  // namespace infini::ops::bindings

#endif  // INFINI_OPS_BINDINGS_TORCH_OBJECTS_H_
