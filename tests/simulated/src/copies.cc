// Copies to, from and between devices, with any conversion of data types.

#include <ATen/ops/_local_scalar_dense.h>

#include "PrivateUse1NativeFunctions.h"
#include "tensors.h"

namespace simulated {

namespace {

// A copy of booleans to booleans would turn every byte but 0 into 1: no hardware does this.
at::Tensor AsBytes(const at::Tensor& host) {
  return host.scalar_type() == at::kBool ? host.view(at::kByte) : host;
}

}  // namespace

at::Tensor Kernels::_copy_from(const at::Tensor& self, const at::Tensor& dst,
                               bool /*non_blocking*/) {
  if (self.scalar_type() == dst.scalar_type()) {
    AsBytes(OnHost(dst)).copy_(AsBytes(OnHost(self)));
  } else {
    OnHost(dst).copy_(OnHost(self));
  }
  return dst;
}

at::Scalar Kernels::_local_scalar_dense(const at::Tensor& self) {
  return at::_local_scalar_dense(OnHost(self));
}

}  // namespace simulated
