#ifndef INFINI_OPS_CUDA_VENDOR_BLAS_H_
#define INFINI_OPS_CUDA_VENDOR_BLAS_H_

// NVIDIA, and Iluvatar, whose libraries have the same names (never compiled there, because no SDK
// was available). blas.h lists what a vendor must define here.
#include <cublasLt.h>
#include <cublas_v2.h>

#define INFINI_OPS_BLAS(name) cublas##name
#define INFINI_OPS_BLAS_VALUE(name) CUBLAS##name
#define INFINI_OPS_DATA_TYPE(name) CUDA_##name

#endif  // INFINI_OPS_CUDA_VENDOR_BLAS_H_
