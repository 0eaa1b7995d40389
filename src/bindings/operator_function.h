#ifndef INFINI_OPS_BINDINGS_OPERATOR_FUNCTION_H_
#define INFINI_OPS_BINDINGS_OPERATOR_FUNCTION_H_

#include <Python.h>

#include <string_view>

#include "bindings/python.h"

namespace infini::ops::bindings {

// Defines the Python type of `infini.ops.abs` and the other operators: one generic callable over
// the operator table. It uses the vectorcall protocol, so that a call needs no tuple or dictionary.
void InitializeOperatorFunction(PyObject* module);

// Sets the Python form of a call, a function with the parameters of `__call__`. `torch.compile`
// traces it, and it runs the calls on tensors without memory, such as fake tensors. Call this once,
// before any call of an operator.
void SetTraceableCall(PyObject* function);

// The callable of the operator `name`. Throws `std::invalid_argument` if there is none.
Object MakeOperatorFunction(std::string_view name);

}  // namespace infini::ops::bindings

#endif  // INFINI_OPS_BINDINGS_OPERATOR_FUNCTION_H_
