#ifndef INFINI_OPS_CORE_REQUIREMENTS_H_
#define INFINI_OPS_CORE_REQUIREMENTS_H_

#include <initializer_list>

#include "infini/ops/argument.h"
#include "infini/ops/tensor.h"

// What implementations ask of their arguments, on every device: all but the element types, which
// differ, and of which those of undefined tensors are float32.
namespace infini::ops {

// True when `tensor` broadcasts to the shape of `out`.
bool BroadcastsTo(const Tensor& tensor, const Tensor& out);

// True when both are there, with aligned elements (those of NumPy's views of raw bytes need not
// be), and `out` may be written while `input` is read.
bool IsInput(const Tensor& input, const Tensor& out);

// The same, of tensors of one type, for operators that read an input more than once: it may not be
// `out`, either.
bool IsProductInput(const Tensor& input, const Tensor& out);

// True for a bias with the dimensions of linear's weight but the last.
bool IsBias(const Tensor& bias, const Tensor& weight, const Tensor& out);

// True for inputs of the type of `out`, which has the shape that they broadcast to. Torch resizes
// any other.
bool IsElementwise(const Tensor& out, std::initializer_list<const Tensor*> inputs);

// The `weight` may have another type.
bool IsRmsNorm(const Tensor& input, const Tensor& weight, const Tensor& out);

bool IsCausalSoftmax(const Tensor& input, const Tensor& out);

// True when torch, too, would take `value` to multiply tensors of the real type with.
bool IsFactor(const Scalar& value, DataType type);

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_REQUIREMENTS_H_
