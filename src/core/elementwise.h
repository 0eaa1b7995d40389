#ifndef INFINI_OPS_CORE_ELEMENTWISE_H_
#define INFINI_OPS_CORE_ELEMENTWISE_H_

#include <initializer_list>

#include "infini/ops/argument.h"
#include "infini/ops/tensor.h"

// What elementwise implementations ask of their arguments, on every device.
namespace infini::ops {

// True when `tensor` broadcasts to the shape of `out`.
bool BroadcastsTo(const Tensor& tensor, const Tensor& out);

// True when `out` has the shape that the inputs broadcast to. Torch resizes any other.
bool HasBroadcastShape(const Tensor& out, std::initializer_list<const Tensor*> inputs);

// NumPy's views of raw bytes need not be.
bool IsAligned(const Tensor& tensor);

// True when all tensors are there and aligned, `out` may be written while the inputs are read and
// has the shape that they broadcast to: all that an elementwise kernel asks for but the types.
bool IsElementwise(const Tensor& out, std::initializer_list<const Tensor*> inputs);

// True when torch, too, would take `value` to multiply tensors of the real type with.
bool IsFactor(const Scalar& value, DataType type);

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_ELEMENTWISE_H_
