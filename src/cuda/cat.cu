#include <stdexcept>

#include "base/cat.h"
#include "core/concatenation.h"
#include "core/elements.h"
#include "cuda/copy.h"

namespace infini::ops {
template <>
struct Operator<Cat, cuda::kDevice, 0> {
  static bool Supports(Span<Tensor> tensors, std::int64_t dim, const Tensor& out) {
    return IsStoredType(out.data_type()) && IsConcatenation(tensors, dim, out);
  }

  static void Run(const Invocation& invocation, Span<Tensor> tensors, std::int64_t dim,
                  const Tensor& out) {
    if (!Supports(tensors, dim, out)) {
      throw std::invalid_argument(
          "cat: slot 0 takes aligned strided tensors of one integer, float or bool type whose "
          "shapes differ only in dimension `dim`, and an out of the concatenated shape; out must "
          "not overlap itself or an input; got " +
          std::to_string(tensors.size()) + " tensors" +
          (tensors.empty() ? "" : ", the first " + Describe(tensors[0])) + ", dim " +
          std::to_string(dim) + " and out " + Describe(out));
    }
    cuda::Copier copier(invocation);
    ForEachPart(tensors, DimensionOf(dim, out), out, [&](const Tensor& tensor, const Tensor& part) {
      copier.Add(MakeGeometry(part, tensor), DataTypeSize(out.data_type()));
    });
    copier.Flush();
  }
};

INFINI_OPS_REGISTER(Cat, cuda::kDevice, 0);

}  // namespace infini::ops
