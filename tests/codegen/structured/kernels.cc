// A device on host memory, with structured kernels: what torch's `meta` computes is used as it is.

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/add.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "PrivateUse1NativeFunctions.h"

namespace acme {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

C10_REGISTER_GUARD_IMPL(PrivateUse1, c10::impl::NoOpDeviceGuardImpl<at::kPrivateUse1>);

struct HostAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr host = c10::GetCPUAllocator()->allocate(bytes);
    c10::DeleterFnPtr deleter = host.get_deleter();
    void* const data = host.get();
    return {data, host.release_context(), deleter, c10::Device(at::kPrivateUse1, 0)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

HostAllocator allocator;

at::Tensor OnHost(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

// An output has its final shape and type before the kernel runs.
void Write(const at::Tensor& host, const at::Tensor& out) {
  TORCH_CHECK(host.sizes() == out.sizes(), "got ", out.sizes(), ", expected ", host.sizes());
  TORCH_CHECK(out.is_privateuseone(), "the output is on ", out.device());
  OnHost(out).copy_(host);
}

}  // namespace

at::Tensor Kernels::empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                          std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                          std::optional<at::MemoryFormat> memory_format) {
  return at::detail::empty_generic(size, &allocator, kKeys, c10::dtype_or_default(dtype),
                                   memory_format);
}

at::Tensor Kernels::empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                                  std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                                  std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, kKeys,
                                           c10::dtype_or_default(dtype));
}

const at::Tensor& Kernels::resize_(const at::Tensor& self, at::IntArrayRef size,
                                   std::optional<at::MemoryFormat>) {
  c10::TensorImpl& tensor = *self.unsafeGetTensorImpl();
  tensor.set_sizes_contiguous(size);
  const size_t bytes = tensor.numel() * tensor.dtype().itemsize();
  c10::StorageImpl& storage = *tensor.unsafe_storage().unsafeGetStorageImpl();
  if (bytes > storage.nbytes()) {
    storage.set_data_ptr_noswap(allocator.allocate(bytes));
    storage.set_nbytes(bytes);
  }
  return self;
}

at::Tensor Kernels::as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                               std::optional<int64_t> storage_offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, storage_offset);
}

at::Tensor Kernels::view(const at::Tensor& self, at::IntArrayRef size) {
  return at::native::view(self, size);
}

at::Tensor Kernels::_copy_from(const at::Tensor& self, const at::Tensor& dst, bool) {
  OnHost(dst).copy_(OnHost(self));
  return dst;
}

at::Scalar Kernels::_local_scalar_dense(const at::Tensor& self) {
  return at::_local_scalar_dense(OnHost(self));
}

TORCH_IMPL_FUNC(add_out)
(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, const at::Tensor& out) {
  // The iterator has the same output in each variant.
  TORCH_CHECK(output().is_same(out), "the output of the iterator is another tensor");
  TORCH_CHECK(common_dtype() == at::result_type(self, other), "got ", common_dtype());
  Write(at::add(OnHost(self), OnHost(other), alpha), output());
}

TORCH_IMPL_FUNC(multiply)
(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {
  Write(at::mm(OnHost(self), OnHost(mat2)), out);
}

TORCH_IMPL_FUNC(cat_out)
(const at::ITensorListRef& tensors, int64_t dim, int64_t valid, bool all_contiguous,
 bool all_same_dtype, bool all_same_sizes_and_stride, at::MemoryFormat memory_format,
 const at::Tensor& out) {
  TORCH_CHECK(dim >= 0, "dim is wrapped by `meta`");
  std::vector<at::Tensor> host;
  for (const at::Tensor& tensor : tensors) host.push_back(OnHost(tensor));
  TORCH_CHECK(valid == 0 || host[0].numel() == 0, "the first tensor that counts is ", valid);
  Write(at::cat(host, dim), out);
}

TORCH_IMPL_FUNC(_softmax_out)
(const at::Tensor& self, int64_t dim, bool half_to_float, const at::Tensor& out) {
  Write(at::_softmax(OnHost(self), dim, half_to_float), out);
}

TORCH_IMPL_FUNC(cumsum_out)
(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype, const at::Tensor& out) {
  Write(at::cumsum(OnHost(self), dim, dtype), out);
}

TORCH_IMPL_FUNC(linalg_inv_ex_out)
(const at::Tensor& A, bool check_errors, const at::Tensor& inverse, const at::Tensor& info) {
  TORCH_CHECK(inverse.mT().is_contiguous(), "expected a matrix in column order");
  Write(at::linalg_inv(OnHost(A)), inverse);
  OnHost(info).zero_();
}

}  // namespace acme
