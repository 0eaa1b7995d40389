#ifndef INFINI_OPS_TORCH_FOREIGN_H_
#define INFINI_OPS_TORCH_FOREIGN_H_

#include <string_view>

#include "infini/ops/operator.h"

// What the core may ask about an `at::Tensor` that it passes on by address, and how it passes
// it on; no torch header is needed for that.
namespace infini::ops::torch_backend {

// The tensor at `index` of an array of them; nullptr for an undefined one.
const void* ElementOf(const void* tensors, std::size_t index);

// Throws `std::invalid_argument` for a device that this library was not built for.
Device DeviceOf(const void* tensor);

// Counts a write to each tensor of an array in its version, which autograd looks at.
void CountWrites(const void* tensors, std::size_t size);

// A view of the tensor's memory; `Tensor()` where there is none to view (an undefined,
// sparse or meta tensor).
Tensor ViewOf(const void* tensor);

// The vendor's handle of the stream that is current on the device, nullptr for the default one.
// Throws `std::runtime_error` where torch does not tell.
void* CurrentStream(Device device);

// The kernel of slot 8 for the operator of this public name, to be registered with a
// `generated::TorchKernel` as its data.
Kernel KernelOf(std::string_view operator_name);

// What `torch.set_num_threads` says on this thread.
int ThreadCount();

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_FOREIGN_H_
