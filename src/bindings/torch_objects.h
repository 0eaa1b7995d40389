#ifndef INFINI_OPS_BINDINGS_TORCH_OBJECTS_H_
#define INFINI_OPS_BINDINGS_TORCH_OBJECTS_H_

#include <Python.h>

#include <optional>

#include "infini/ops/operator.h"

// All code that needs torch's Python headers. Only `torch_objects.cc` includes them.
namespace infini::ops::bindings {

// Call this once, before the other functions. Imports torch. Throws an `ImportError` if the tensors
// of this torch can't be read.
void InitializeTorchObjects();

// The `at::Tensor` inside a `torch.Tensor`, as a borrowed pointer; nullptr for any other object.
const void* UnpackTensor(PyObject* object);

// The `at::Generator` inside a `torch.Generator`; nullptr for any other object.
const void* UnpackGenerator(PyObject* object);

// The value of a `torch.dtype`, `torch.layout`, `torch.memory_format` or `torch.device` if it is of
// the kind `type`; empty for any other object.
std::optional<Argument> UnpackValue(Parameter::Type type, PyObject* object);

// Dispatches with the interpreter lock released, and modifies `arguments`. C++ exceptions become
// the Python exceptions that torch would raise, and torch's warnings become Python warnings.
// Returns a new reference to `None`, or nullptr with the error set. Returns `NotImplemented` if no
// implementation takes the call, and one of the tensors has its own dispatch in Python.
PyObject* DispatchWithTorchErrors(const Overload& overload, Argument* arguments,
                                  const CallOptions& options);

}  // namespace infini::ops::bindings

#endif  // INFINI_OPS_BINDINGS_TORCH_OBJECTS_H_
