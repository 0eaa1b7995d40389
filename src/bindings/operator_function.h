#ifndef INFINI_OPS_BINDINGS_OPERATOR_FUNCTION_H_
#define INFINI_OPS_BINDINGS_OPERATOR_FUNCTION_H_

#include <Python.h>

#include <string_view>

#include "bindings/python.h"

namespace infini::ops::bindings {

// Defines the Python type of `infini.ops.abs` and the other operators: one generic callable over
// the operator table. It uses the vectorcall protocol, so that a call needs no tuple or dictionary.
void InitializeOperatorFunction(PyObject* module);

// The callable of the operator `name`. Throws `std::invalid_argument` if there is none.
Object MakeOperatorFunction(std::string_view name);

}  // namespace infini::ops::bindings

#endif  // INFINI_OPS_BINDINGS_OPERATOR_FUNCTION_H_
