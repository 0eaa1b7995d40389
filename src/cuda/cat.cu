#include "base/cat.h"
#include "core/concatenation.h"
#include "cuda/copy.h"

namespace infini::ops {

template <>
struct Operator<Cat, cuda::kDevice, 0> {
  static void Run(const Invocation& invocation, Span<Tensor> tensors, std::int64_t dim,
                  const Tensor& out) {
    cuda::Copier copier(invocation);
    ForEachPart(tensors, DimensionOf(dim, out), out, [&](const Tensor& tensor, const Tensor& part) {
      copier.Add(MakeGeometry(part, tensor), DataTypeSize(out.data_type()));
    });
    copier.Flush();
  }
};

INFINI_OPS_REGISTER(Cat, cuda::kDevice, 0);

}  // namespace infini::ops
