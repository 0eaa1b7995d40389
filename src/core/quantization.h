#ifndef INFINI_OPS_CORE_QUANTIZATION_H_
#define INFINI_OPS_CORE_QUANTIZATION_H_

// The shapes of quantization, for every device.
namespace infini::ops {

struct Invocation;

// True if the quantized tensor has the shape of the input, and if all others have one element.
bool HasTensorScale(const Invocation& call);

// The same, where written scales and zero points have one element for each row of the input.
bool HasTokenScale(const Invocation& call);

// The same, where they have one for each group of a row, of the size of the second argument. The
// fourth and the fifth one are limits that the quantized type can hold.
bool HasGroupScale(const Invocation& call);

// True for matrices of one type, with one scale or a scale for each row of the first and for each
// column of the second one.
bool HasScaledProduct(const Invocation& call);

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_QUANTIZATION_H_
