#ifndef INFINI_OPS_BINDINGS_PYTHON_H_
#define INFINI_OPS_BINDINGS_PYTHON_H_

#include <Python.h>

#include <memory>
#include <stdexcept>
#include <string>

// The little of a binding library that these bindings need. A whole one (nanobind) took a tenth of
// the build.
namespace infini::ops::bindings {

// Thrown while a Python error is set. The error stays set until the call returns to Python.
class PythonError {};

struct ReleaseReference {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
// An owned reference.
using Object = std::unique_ptr<PyObject, ReleaseReference>;

// Takes the new reference that a function of Python's C API returned; throws if it failed.
inline Object Own(PyObject* new_reference) {
  if (!new_reference) throw PythonError();
  return Object(new_reference);
}

[[noreturn]] inline void Throw(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw PythonError();
}

// Calls a function that returns a new reference. C++ exceptions become Python's: none may reach the
// interpreter.
template <typename Function>
PyObject* Guarded(const Function& function) noexcept {
  try {
    return function();
  } catch (const PythonError&) {
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError,
                    "an implementation threw an exception that is not a std::exception");
  }
  return nullptr;
}

}  // namespace infini::ops::bindings

#endif  // INFINI_OPS_BINDINGS_PYTHON_H_
