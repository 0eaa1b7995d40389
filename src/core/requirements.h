#ifndef INFINI_OPS_CORE_REQUIREMENTS_H_
#define INFINI_OPS_CORE_REQUIREMENTS_H_

#include <initializer_list>

#include "infini/ops/argument.h"
#include "infini/ops/tensor.h"

// Requirements of implementations on their arguments, for every device. Element types are not
// included, because they differ between devices. An undefined tensor counts as float32.
namespace infini::ops {

// True when `tensor` broadcasts to the shape of `out`.
bool BroadcastsTo(const Tensor& tensor, const Tensor& out);

// True if both are defined and aligned, and `out` can be written while `input` is read. NumPy views
// of raw bytes can be unaligned.
bool IsInput(const Tensor& input, const Tensor& out);

// The same for operators that read an input more than once. Both must have the same type, and
// `input` must not be `out`.
bool IsProductInput(const Tensor& input, const Tensor& out);

// True if the bias has the dimensions of linear's weight without the last one.
bool IsBias(const Tensor& bias, const Tensor& weight, const Tensor& out);

// True if the inputs have the type of `out`, and `out` has the shape that they broadcast to. Torch
// resizes an `out` of another shape.
bool IsElementwise(const Tensor& out, std::initializer_list<const Tensor*> inputs);

// `weight` can have another type.
bool IsRmsNorm(const Tensor& input, const Tensor& weight, const Tensor& out);

bool IsCausalSoftmax(const Tensor& input, const Tensor& out);

// True if torch also accepts `value` as a factor for tensors of this real type.
bool IsFactor(const Scalar& value, DataType type);

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_REQUIREMENTS_H_
