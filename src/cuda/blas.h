#ifndef INFINI_OPS_CUDA_BLAS_H_
#define INFINI_OPS_CUDA_BLAS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "cuda/runtime.h"
// Every vendor has one file vendor_blas.h. Like vendor.h, it includes the BLAS headers and defines
// the prefixes of the BLAS functions and types (INFINI_OPS_BLAS), constants (INFINI_OPS_BLAS_VALUE)
// and data types (INFINI_OPS_DATA_TYPE). Only blas.cu uses them: Create, Destroy, SetStream,
// SetWorkspace, GetStatusString, GemmEx, GemmStridedBatchedEx, and LtMatmul with its descriptors,
// layouts, preferences and LtMatmulAlgoGetHeuristic.
#include "vendor_blas.h"

namespace infini::ops::cuda {

using BlasHandle = INFINI_OPS_BLAS(Handle_t);

// A column-major matrix; its columns are `leading` elements apart. If transposed, it is row-major.
struct BlasMatrix {
  void* data;
  std::int64_t leading;
  std::int64_t batch_stride;
  bool transposed;
};

// out = alpha * a @ b + beta * out: `a` is [m, k], `b` [k, n], `out` [m, n]. `out` is not
// transposed.
struct BlasProduct {
  DataType data_type;  // float16, bfloat16, float32 or float64
  std::int64_t m, n, k, batch_size;
  BlasMatrix a, b, out;
  double alpha, beta;
};

// The vendor's BLAS for calls on one stream, with a handle that no other thread uses at the same
// time.
//
// A workspace belongs to a device and a stream. The kernels on a stream run one after the other,
// whichever thread launches them. The first call on a stream allocates the workspace, even during
// graph capture. A graph keeps using the workspace of the stream on which it was captured.
// Therefore, as in torch, graphs captured on one stream must not run at the same time, or after
// `ClearCache`.
class Blas {
 public:
  Blas(Device device, Stream stream);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  void Multiply(const BlasProduct& product) const;

  // For one matrix; bias[i] is added to row i. Returns false if the vendor's library does not
  // support it, or would round the product before.
  bool MultiplyAndAdd(const BlasProduct& product, const void* bias) const;

  // Frees all handles and workspaces that are not in use. Waits for the devices, so do not call it
  // during graph capture.
  static void ClearCache();

 private:
  struct Workspace;
  struct Cache;
  static Cache& TheCache();

  int device_;
  Stream stream_;
  BlasHandle handle_;
  std::shared_ptr<Workspace> workspace_;
};

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_BLAS_H_
