// Tensors: how they are made, resized, viewed, and reached from kernels.

#include "tensors.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_copy_from.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "PrivateUse1NativeFunctions.h"
#include "memory.h"

namespace simulated {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// Gives a tensor its sizes, and its storage at least the bytes that they need.
void Resize(c10::TensorImpl& tensor, at::IntArrayRef size, at::OptionalIntArrayRef stride) {
  if (stride) {
    tensor.set_sizes_and_strides(size, *stride);
  } else {
    tensor.set_sizes_contiguous(size);
  }
  if (tensor.numel() == 0) return;
  const size_t bytes = at::detail::computeStorageNbytes(
      tensor.sizes(), tensor.strides(), tensor.dtype().itemsize(), tensor.storage_offset());
  c10::StorageImpl& storage = *tensor.unsafe_storage().unsafeGetStorageImpl();
  if (bytes > storage.nbytes()) ResizeStorage(storage, bytes);
}

}  // namespace

at::Tensor OnHost(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return tensor;
  TORCH_CHECK(tensor.is_privateuseone(),
              "expected a tensor of the simulated device or the CPU, got ", tensor.device());
  void* const address = tensor.data_ptr();
  // Code that lends memory to torch names the device, and may name the wrong one.
  TORCH_CHECK(tensor.numel() == 0 || DeviceOf(address) == tensor.device(),
              "the memory of a tensor on ", tensor.device(), " is on ", DeviceOf(address));
  return at::from_blob(Reach(address), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

std::optional<at::Tensor> OnHost(const std::optional<at::Tensor>& tensor) {
  return tensor ? std::optional<at::Tensor>(OnHost(*tensor)) : std::nullopt;
}

void CheckOperands(c10::Device device, std::initializer_list<at::Tensor> operands) {
  for (const at::Tensor& operand : operands) {
    const bool is_scalar = operand.is_cpu() && operand.dim() == 0;
    TORCH_CHECK(is_scalar || operand.device() == device,
                "Expected all tensors to be on the same device, but found at least two devices, ",
                device, " and ", operand.device(), "!");
  }
}

at::Tensor ToDevice(const at::Tensor& host, c10::Device device) {
  if (!host.defined()) return {};  // a gradient that is not needed
  at::Tensor tensor =
      at::empty_strided(host.sizes(), host.strides(), host.options().device(device));
  OnHost(tensor).copy_(host);
  return tensor;
}

at::Tensor& Write(const at::Tensor& host, at::Tensor& out) {
  TORCH_CHECK(c10::canCast(host.scalar_type(), out.scalar_type()), "result type ",
              host.scalar_type(), " can't be cast to the desired output type ", out.scalar_type());
  at::native::resize_output(out, host.sizes());
  OnHost(out).copy_(host);
  return out;
}

void ResizeStorage(c10::StorageImpl& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceGuard guard(storage.device());
  at::DataPtr data = storage.allocator()->allocate(bytes);
  const size_t kept = std::min(bytes, storage.nbytes());
  if (kept) storage.allocator()->copy_data(data.get(), storage.data(), kept);
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
}

// Factories.

at::Tensor Kernels::empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                          std::optional<at::Layout> /*layout*/,
                          std::optional<at::Device> /*device*/, std::optional<bool> pin_memory,
                          std::optional<at::MemoryFormat> memory_format) {
  TORCH_CHECK(!pin_memory.value_or(false), "only dense CPU tensors can be pinned");
  return at::detail::empty_generic(size, &DeviceAllocator(), kKeys, c10::dtype_or_default(dtype),
                                   memory_format);
}

at::Tensor Kernels::empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                                  std::optional<at::ScalarType> dtype,
                                  std::optional<at::Layout> /*layout*/,
                                  std::optional<at::Device> /*device*/,
                                  std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "only dense CPU tensors can be pinned");
  return at::detail::empty_strided_generic(size, stride, &DeviceAllocator(), kKeys,
                                           c10::dtype_or_default(dtype));
}

// Tensors that change.

const at::Tensor& Kernels::resize_(const at::Tensor& self, at::IntArrayRef size,
                                   std::optional<at::MemoryFormat> memory_format) {
  Resize(*self.unsafeGetTensorImpl(), size, std::nullopt);
  if (memory_format) self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  return self;
}

at::Tensor& Kernels::set_(at::Tensor& self, at::Storage source, int64_t storage_offset,
                          at::IntArrayRef size, at::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, storage_offset, size, stride,
                              /*check_offset_in_bounds=*/false);
  self.unsafeGetTensorImpl()->set_storage_offset(storage_offset);
  Resize(*self.unsafeGetTensorImpl(), size,
         stride.data() ? at::OptionalIntArrayRef(stride) : std::nullopt);
  return self;
}

at::Tensor& Kernels::set_(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_(self, std::move(source), 0, elements, {});
}

at::Tensor& Kernels::set_(at::Tensor& self, const at::Tensor& source) {
  return set_(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& Kernels::set_(at::Tensor& self) {
  return set_(self, c10::Storage(c10::Storage::use_byte_size_t(), 0, &DeviceAllocator(), true), 0,
              {0}, {});
}

// Nothing is in use on a stream when a kernel has returned.
void Kernels::record_stream(at::Tensor& /*self*/, at::Stream /*stream*/) {}

// Views: torch's functions for the CPU touch no memory, so they work here.

at::Tensor Kernels::as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                               std::optional<int64_t> storage_offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, storage_offset);
}

at::Tensor Kernels::_reshape_alias(const at::Tensor& self, at::IntArrayRef size,
                                   at::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

at::Tensor Kernels::unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}

at::Tensor Kernels::view(const at::Tensor& self, at::IntArrayRef size) {
  return at::native::view(self, size);
}

at::Tensor Kernels::view_as_complex(const at::Tensor& self) {
  return at::native::view_as_complex(self);
}

at::Tensor Kernels::view_as_real(const at::Tensor& self) { return at::native::view_as_real(self); }

}  // namespace simulated
