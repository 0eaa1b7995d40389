// Kernels that compute: torch's kernels for the CPU, on the memory of the device.

#include <ATen/ops/add.h>
#include <ATen/ops/addr.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sum.h>

#include "PrivateUse1NativeFunctions.h"
#include "tensors.h"

namespace simulated {

at::Tensor& Kernels::add_out(const at::Tensor& self, const at::Tensor& other,
                             const at::Scalar& alpha, at::Tensor& out) {
  CheckOperands(out.device(), {self, other});
  return Write(at::add(OnHost(self), OnHost(other), alpha), out);
}

// torch would use operators that round the product in types shorter than float.
at::Tensor Kernels::addr(const at::Tensor& self, const at::Tensor& vec1, const at::Tensor& vec2,
                         const at::Scalar& beta, const at::Scalar& alpha) {
  CheckOperands(vec1.device(), {self, vec2});
  return ToDevice(at::addr(OnHost(self), OnHost(vec1), OnHost(vec2), beta, alpha), vec1.device());
}

at::Tensor& Kernels::fill_(at::Tensor& self, const at::Scalar& value) {
  OnHost(self).fill_(value);
  return self;
}

// The fallback can't write into a copy of a tensor whose elements share memory.
at::Tensor& Kernels::masked_fill_(at::Tensor& self, const at::Tensor& mask,
                                  const at::Scalar& value) {
  CheckOperands(self.device(), {mask});
  OnHost(self).masked_fill_(OnHost(mask), value);
  return self;
}

at::Tensor& Kernels::mm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  return Write(at::mm(OnHost(self), OnHost(mat2)), out);
}

at::Tensor Kernels::mul(const at::Tensor& self, const at::Tensor& other) {
  const at::Device device = self.is_cpu() ? other.device() : self.device();
  CheckOperands(device, {self, other});
  return ToDevice(at::mul(OnHost(self), OnHost(other)), device);
}

at::Tensor Kernels::relu(const at::Tensor& self) {
  return ToDevice(at::relu(OnHost(self)), self.device());
}

at::Tensor& Kernels::sum_out(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                             std::optional<at::ScalarType> dtype, at::Tensor& out) {
  CheckOperands(out.device(), {self});
  // Without a requested data type, that of the output decides.
  return Write(at::sum(OnHost(self), dim, keepdim, dtype ? *dtype : out.scalar_type()), out);
}

at::Tensor& Kernels::zero_(at::Tensor& self) {
  OnHost(self).zero_();
  return self;
}

}  // namespace simulated
