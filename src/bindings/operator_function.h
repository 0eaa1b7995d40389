#ifndef INFINI_OPS_BINDINGS_OPERATOR_FUNCTION_H_
#define INFINI_OPS_BINDINGS_OPERATOR_FUNCTION_H_

#include <nanobind/nanobind.h>

#include <string_view>

namespace infini::ops::bindings {

// Makes the Python type of `infini.ops.abs` and its like: one generic callable over the
// operator table. Called through the vectorcall protocol, so that no tuple or dictionary is
// built for a call.
void InitializeOperatorFunction(nanobind::module_& module);

// The callable of the operator `name`. Throws `std::invalid_argument` when there is none.
nanobind::object MakeOperatorFunction(std::string_view name);

}  // namespace infini::ops::bindings

#endif  // INFINI_OPS_BINDINGS_OPERATOR_FUNCTION_H_
