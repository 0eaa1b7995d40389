#ifndef INFINI_OPS_CUDA_VENDOR_BLAS_H_
#define INFINI_OPS_CUDA_VENDOR_BLAS_H_

// Moore Threads. Never compiled, because no SDK was available.
#include <mublas.h>
#include <mublasLt.h>

#define INFINI_OPS_BLAS(name) mublas##name
#define INFINI_OPS_BLAS_VALUE(name) MUBLAS##name
#define INFINI_OPS_DATA_TYPE(name) MUSA_##name

#endif  // INFINI_OPS_CUDA_VENDOR_BLAS_H_
