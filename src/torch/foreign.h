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

// True where torch multiplies matrices of this type on the CPU with a library: its BLAS, oneDNN.
bool HasFastProducts(DataType type);

// out = alpha * a @ b + beta * term, of matrices or of stacks of them on the CPU, past torch's
// dispatcher and its modes. `term` has the shape of `out`, and may be `out`.
//
// ATen's kernel rather than `sgemm_`: in a process with several BLAS libraries, some with 64-bit
// sizes, that name may be another's; and torch's kernel knows which of its libraries is best here
// and obeys `torch.set_num_threads`.
void Multiply(const Tensor& a, const Tensor& b, const Tensor& term, const Scalar& alpha,
              const Scalar& beta, const Tensor& out);

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_FOREIGN_H_
