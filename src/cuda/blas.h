#ifndef INFINI_OPS_CUDA_BLAS_H_
#define INFINI_OPS_CUDA_BLAS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "cuda/runtime.h"
// One file per vendor, as vendor.h: the headers of its BLAS, and how its functions and types
// (INFINI_OPS_BLAS), its constants (INFINI_OPS_BLAS_VALUE) and its data types
// (INFINI_OPS_DATA_TYPE) begin. What is used of it is in blas.cu alone: Create, Destroy,
// SetStream, SetWorkspace, GetStatusString, GemmEx, GemmStridedBatchedEx, and LtMatmul with its
// descriptors, layouts, preferences and LtMatmulAlgoGetHeuristic.
#include "vendor_blas.h"

namespace infini::ops::cuda {

using BlasHandle = INFINI_OPS_BLAS(Handle_t);

// A matrix in columns, `leading` elements from one to the next; transposed, in rows.
struct BlasMatrix {
  void* data;
  std::int64_t leading;
  std::int64_t batch_stride;
  bool transposed;
};

// out = alpha * a @ b + beta * out: `a` is [m, k], `b` [k, n], `out` [m, n] and not transposed.
struct BlasProduct {
  DataType data_type;  // float16, bfloat16, float32 or float64
  std::int64_t m, n, k, batch_size;
  BlasMatrix a, b, out;
  double alpha, beta;
};

// The vendor's BLAS for calls on one stream, with a handle that no other thread uses meanwhile.
//
// A workspace belongs to a device and a stream, whose kernels come one after the other, whichever
// thread launches them. The first call on a stream allocates it, also while a graph is captured; a
// graph keeps using the one of the stream that it was captured on. So, as with torch, graphs
// captured on one stream must not run at the same time, nor after `ClearCache`.
class Blas {
 public:
  Blas(Device device, Stream stream);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  void Multiply(const BlasProduct& product) const;

  // Of one matrix, with bias[i] added to row i. False where the vendor's library can't.
  bool MultiplyAndAdd(const BlasProduct& product, const void* bias) const;

  // Frees the handles and workspaces, but for those in use. Waits for the devices, so not while a
  // graph is captured.
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
