#ifndef INFINI_OPS_BINDINGS_OPERATOR_FUNCTION_H_
#define INFINI_OPS_BINDINGS_OPERATOR_FUNCTION_H_

#include <nanobind/nanobind.h>

#include <string_view>

namespace infini::ops::bindings {

// Defines the Python type of `infini.ops.abs` and the other operators: one generic callable over
// the operator table. It uses the vectorcall protocol, so that a call needs no tuple or dictionary.
void InitializeOperatorFunction(nanobind::module_& module);

// The callable of the operator `name`. Throws `std::invalid_argument` if there is none.
nanobind::object MakeOperatorFunction(std::string_view name);

}  // namespace infini::ops::bindings

#endif  // INFINI_OPS_BINDINGS_OPERATOR_FUNCTION_H_
