#include "torch/shells.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <stdexcept>

#include "torch/kernel.h"

namespace infini::ops::torch_backend {
namespace {

at::IntArrayRef ToTorch(Span<std::int64_t> values) { return {values.data(), values.size()}; }

}  // namespace

at::Tensor MakeAround(const Tensor& view) {
  const at::Device device = ToDevice(view.device());
  return at::for_blob(view.data(), ToTorch(view.shape()))
      .strides(ToTorch(view.strides()))
      .options(at::device(device).dtype(ToScalarType(view.data_type())))
      .target_device(device)
      .allocator(c10::GetAllocator(device.type()))
      .resizeable_storage()
      .make_tensor();
}

const at::Tensor& Shell::Around(const Tensor& view) {
  if (!view.defined()) {
    tensor_.reset();
    return tensor_;
  }
  // ATen also checks this, but in a noexcept function, where throwing ends the process.
  for (std::int64_t stride : view.strides()) {
    if (stride < 0) {
      throw std::invalid_argument("torch takes no array with negative strides: " + Describe(view) +
                                  "; pass a copy");
    }
  }
  if (!IsReusable(view)) {
    tensor_ = MakeAround(view);
    keys_ = tensor_.key_set();
  } else {
    PointAt(view);
  }
  lent_ = view.data();
  return tensor_;
}

void Shell::TakeBack() {
  if (!tensor_.defined()) return;
  const at::Storage& storage = tensor_.storage();
  const bool is_lent = storage.data() == lent_;
  const bool is_kept = tensor_.use_count() > 1 || storage.use_count() > 1;
  if (is_lent && !is_kept) return;
  if (is_lent && storage.nbytes() > 0) {
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
        storage.allocator()->clone(lent_, storage.nbytes()));
  }
  // Moved out first: freeing it can run Python code that calls this function again.
  const at::Tensor kept = std::move(tensor_);
}

// Not if a call has changed more than its values, or if it is an inference tensor outside inference
// mode.
bool Shell::IsReusable(const Tensor& view) const {
  return tensor_.defined() && tensor_.key_set() == keys_ &&
         tensor_.is_inference() == c10::InferenceMode::is_enabled() &&
         !tensor_.unsafeGetTensorImpl()->autograd_meta() &&
         tensor_.scalar_type() == static_cast<at::ScalarType>(view.data_type()) &&
         tensor_.device() == ToDevice(view.device());
}

void Shell::PointAt(const Tensor& view) {
  const auto shape = ToTorch(view.shape());
  const auto strides = ToTorch(view.strides());
  c10::StorageImpl* storage = tensor_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(view.data(), tensor_.device()));
  storage->set_nbytes(at::detail::computeStorageNbytes(shape, strides, tensor_.itemsize()));
  tensor_.unsafeGetTensorImpl()->set_sizes_and_strides(shape, strides, 0);
}

}  // namespace infini::ops::torch_backend
