#include <stdexcept>

#include "base/cat.h"
#include "core/elementwise.h"
#include "cuda/copy.h"
#include "cuda/types.h"

namespace infini::ops {
namespace {

// Torch takes a one-dimensional empty tensor among tensors of any shape, for nothing.
bool IsNothing(const Tensor& tensor) { return tensor.dimensions() == 1 && tensor.shape()[0] == 0; }

// True when the tensor has the shape of `out` but for the extent along `dim`.
bool FitsAlong(std::size_t dim, const Tensor& tensor, const Tensor& out) {
  if (tensor.dimensions() != out.dimensions()) return false;
  for (std::size_t i = 0; i < out.dimensions(); ++i) {
    if (i != dim && tensor.shape()[i] != out.shape()[i]) return false;
  }
  return true;
}

// The part of `out` along `dim` that has the extent of `tensor` and begins at `begin`.
Tensor SliceFor(const Tensor& tensor, const Tensor& out, std::size_t dim, std::int64_t begin) {
  const auto size = static_cast<std::int64_t>(DataTypeSize(out.data_type()));
  return Tensor(out.data<char>() + begin * out.strides()[dim] * size, tensor.shape(), out.strides(),
                out.data_type(), out.device());
}

}  // namespace

template <>
struct Operator<Cat, cuda::kDevice, 0> {
  static bool Supports(Span<Tensor> tensors, std::int64_t dim, const Tensor& out) {
    if (!out.defined() || !IsAligned(out) || !cuda::IsStoredType(out.data_type())) return false;
    const auto rank = static_cast<std::int64_t>(out.dimensions());
    if (tensors.empty() || dim < -rank || dim >= rank) return false;
    const auto along = static_cast<std::size_t>(dim < 0 ? dim + rank : dim);
    std::int64_t extent = 0;
    for (const Tensor& tensor : tensors) {
      if (!tensor.defined() || tensor.data_type() != out.data_type()) return false;
      if (IsNothing(tensor)) continue;
      if (!IsAligned(tensor) || !FitsAlong(along, tensor, out)) return false;
      if (!IsWritable(out, tensor)) return false;
      extent += tensor.shape()[along];
    }
    return extent == out.shape()[along];
  }

  static void Run(const Invocation& invocation, Span<Tensor> tensors, std::int64_t dim,
                  const Tensor& out) {
    if (!Supports(tensors, dim, out)) {
      throw std::invalid_argument(
          "cat: slot 0 takes aligned strided tensors of one integer, float or bool type whose "
          "shapes differ along dim alone, and an out of their shape, as long as all of them, that "
          "overlaps neither itself nor an input; got " +
          std::to_string(tensors.size()) + " tensors" +
          (tensors.empty() ? "" : ", the first " + Describe(tensors[0])) + ", dim " +
          std::to_string(dim) + " and out " + Describe(out));
    }
    const auto along =
        static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(out.dimensions()) : dim);
    cuda::Copier copier(invocation);
    std::int64_t begin = 0;
    for (const Tensor& tensor : tensors) {
      if (IsNothing(tensor)) continue;
      const Tensor slice = SliceFor(tensor, out, along, begin);
      copier.Add(MakeGeometry(slice, tensor), DataTypeSize(out.data_type()));
      begin += tensor.shape()[along];
    }
    copier.Flush();
  }
};

INFINI_OPS_REGISTER(Cat, cuda::kDevice, 0);

}  // namespace infini::ops
