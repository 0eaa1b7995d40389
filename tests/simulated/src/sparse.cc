// The parts of a compressed sparse tensor, which are tensors of the device themselves. Other
// operators on sparse tensors are missing: a file covers one dispatch key only.

#include <ATen/ops/ccol_indices_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/row_indices_native.h>
#include <ATen/ops/values_native.h>
#include <torch/library.h>

namespace simulated {
namespace {

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("ccol_indices", &at::native::ccol_indices_sparse_csr);
  m.impl("col_indices", &at::native::col_indices_sparse_csr);
  m.impl("crow_indices", &at::native::crow_indices_sparse_csr);
  m.impl("row_indices", &at::native::row_indices_sparse_csr);
  m.impl("values", &at::native::values_sparse_csr);
}

}  // namespace
}  // namespace simulated
