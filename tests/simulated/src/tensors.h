#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>

namespace simulated {

// Returns a tensor of the CPU over the memory of a tensor of the device, for kernels. It is valid
// while the other is. A tensor of the CPU is returned as it is.
at::Tensor OnHost(const at::Tensor& tensor);
std::optional<at::Tensor> OnHost(const std::optional<at::Tensor>& tensor);

// Throws, as torch does, where a tensor is on another device. A scalar may be on the CPU.
void CheckOperands(c10::Device device, std::initializer_list<at::Tensor> operands);

// Returns a new tensor of the device with the elements of one of the CPU, undefined for one that
// is.
at::Tensor ToDevice(const at::Tensor& host, c10::Device device);

// Writes what a kernel computed into `out`, which takes on its shape, but not its data type.
at::Tensor& Write(const at::Tensor& host, at::Tensor& out);

void ResizeStorage(c10::StorageImpl& storage, size_t bytes);

}  // namespace simulated
