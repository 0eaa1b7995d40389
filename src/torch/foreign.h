#ifndef INFINI_OPS_TORCH_FOREIGN_H_
#define INFINI_OPS_TORCH_FOREIGN_H_

#include <string_view>

#include "infini/ops/operator.h"

// The functions through which the core uses an `at::Tensor`, which it knows only by address. They
// need no torch header.
namespace infini::ops::torch_backend {

// The tensor at `index` of an array; nullptr for an undefined one.
const void* ElementOf(const void* tensors, std::size_t index);

// Throws `std::invalid_argument` for a device that this library was not built for.
Device DeviceOf(const void* tensor);

// Increments the version of each tensor of an array, which autograd checks.
void CountWrites(const void* tensors, std::size_t size);

// A view of the tensor's memory; `Tensor()` if there is none (an undefined, sparse or meta tensor).
// Throws `std::invalid_argument` if the tensor's storage is shorter than the view.
Tensor ViewOf(const void* tensor);

// The vendor's handle of the current stream of the device, nullptr for the default stream. Throws
// `std::runtime_error` if torch does not provide the handle.
void* CurrentStream(Device device);

// The kernel of slot 8 for the operator with this public name. Register it with a
// `generated::TorchKernel` as its data.
Kernel KernelOf(std::string_view operator_name);

// The setting of `torch.set_num_threads` on this thread.
int ThreadCount();

// Calls `function(data)` on each of torch's threads for computations, this one included. Returns
// false if torch has been built without OpenMP. Not in the child of a fork, which lacks the threads
// and would wait for them.
bool RunOnAllThreads(void (*function)(void*), void* data);

// True if torch multiplies matrices of this type on the CPU with a library: its BLAS, or oneDNN.
bool HasFastProducts(DataType type);

// out = alpha * a @ b + beta * term, for matrices or batches of matrices on the CPU, without
// torch's dispatcher and its modes. `term` has the shape of `out`, and can be `out`.
//
// This calls ATen's kernel instead of `sgemm_`. In a process with several BLAS libraries, some with
// 64-bit sizes, that name can belong to another one. Torch's kernel also knows which of its
// libraries is best here, and obeys `torch.set_num_threads`.
void Multiply(const Tensor& a, const Tensor& b, const Tensor& term, const Scalar& alpha,
              const Scalar& beta, const Tensor& out);

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_FOREIGN_H_
