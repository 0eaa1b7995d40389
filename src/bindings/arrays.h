#ifndef INFINI_OPS_BINDINGS_ARRAYS_H_
#define INFINI_OPS_BINDINGS_ARRAYS_H_

#include <Python.h>

#include <memory>
#include <optional>

#include "infini/ops/tensor.h"

namespace infini::ops::bindings {

// An array of another library in host memory. `owner` keeps the memory alive.
struct Array {
  Tensor view;
  std::unique_ptr<void, void (*)(void*)> owner;
};

// Takes the array of a Python object, through DLPack (a capsule, or the method `__dlpack__`) or the
// buffer protocol. Returns nothing if it has no array in host memory, of a known type, and writable
// if that is needed. Clears the errors of the object.
std::optional<Array> ImportArray(PyObject* object, bool is_writable);

}  // namespace infini::ops::bindings

#endif  // INFINI_OPS_BINDINGS_ARRAYS_H_
