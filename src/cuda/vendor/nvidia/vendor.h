#ifndef INFINI_OPS_CUDA_VENDOR_H_
#define INFINI_OPS_CUDA_VENDOR_H_

// NVIDIA, and Iluvatar, whose clang++ accepts the same names (never compiled there, because no SDK
// was available). runtime.h lists what a vendor must define here.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define INFINI_OPS_RUNTIME(name) cuda##name

namespace infini::ops::cuda {

using Float16 = __half;
using BFloat16 = __nv_bfloat16;
using LaneMask = unsigned int;

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_VENDOR_H_
