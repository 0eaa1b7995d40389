#ifndef INFINI_OPS_BINDINGS_CONVERT_H_
#define INFINI_OPS_BINDINGS_CONVERT_H_

#include "bindings/call_storage.h"
#include "infini/ops/schema.h"

namespace infini::ops::bindings {

// Converts a Python object to an argument for `parameter`. Returns false if the parameter does not
// accept the type of the object. Throws `PythonError` if it accepts the type, but the
// value is out of range.
bool Convert(const Parameter& parameter, PyObject* object, CallStorage* storage,
             Argument* argument);

}  // namespace infini::ops::bindings

#endif  // INFINI_OPS_BINDINGS_CONVERT_H_
