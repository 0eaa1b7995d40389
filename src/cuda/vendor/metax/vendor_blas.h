#ifndef INFINI_OPS_CUDA_VENDOR_BLAS_H_
#define INFINI_OPS_CUDA_VENDOR_BLAS_H_

// MetaX, with the names of MACA's own headers. Never compiled, because no SDK was available.
#include <mcblas/mcblas.h>
#include <mcblas/mcblasLt.h>

#define INFINI_OPS_BLAS(name) mcblas##name
#define INFINI_OPS_BLAS_VALUE(name) MCBLAS##name
#define INFINI_OPS_DATA_TYPE(name) MACA_##name

#endif  // INFINI_OPS_CUDA_VENDOR_BLAS_H_
