#include <ATen/Config.h>
#include <ATen/Parallel.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "torch/foreign.h"
#include "torch/kernel.h"
#include "torch/shells.h"

namespace infini::ops::torch_backend {
namespace {

// oneDNN's kernels, on CPUs with bfloat16 multiplication; on others they are no faster than
// float32. A program that disables oneDNN gets torch's own kernels, as from torch. To ask for that
// setting would take a header of 0.7 CPU-seconds.
bool HasFastBFloat16() {
#if AT_MKLDNN_ENABLED() && defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

// The tensors of `shells` may be changed, as in `To<at::Tensor>`.
at::Tensor& Borrow(ShellLoan& shells, const Tensor& view) {
  return const_cast<at::Tensor&>(shells.Around(view));
}

}  // namespace

bool HasFastProducts(DataType type) {
  if (type == DataType::kBFloat16) return HasFastBFloat16();
  return AT_BUILD_WITH_BLAS() && (type == DataType::kFloat32 || type == DataType::kFloat64);
}

void Multiply(const Tensor& a, const Tensor& b, const Tensor& term, const Scalar& alpha,
              const Scalar& beta, const Tensor& out) {
  // The kernels copy `term` through the dispatcher, where Python's dispatch modes would intercept
  // it.
  using Key = c10::DispatchKey;
  const c10::impl::ExcludeDispatchKeyGuard no_modes(
      c10::DispatchKeySet({Key::Python, Key::PythonTLSSnapshot}));
  // MKL needs this on each thread to use a setting made on another thread.
  at::internal::lazy_init_num_threads();
  ShellLoan shells;
  at::Tensor& result = Borrow(shells, out);
  const at::Tensor& self = term.data() == out.data() ? result : shells.Around(term);
  const at::Tensor& left = shells.Around(a);
  const at::Tensor& right = shells.Around(b);
  const auto multiply = out.dimensions() == 2 ? at::cpu::addmm_out : at::cpu::baddbmm_out;
  multiply(result, self, left, right, ToScalar(beta), ToScalar(alpha));
}

}  // namespace infini::ops::torch_backend
