#ifndef INFINI_OPS_CUDA_VENDOR_H_
#define INFINI_OPS_CUDA_VENDOR_H_

// MetaX, with the names of MACA's own headers. Never compiled, because no SDK was available.
#include <common/maca_bfloat16.h>
#include <common/maca_fp16.h>
#include <mcr/mc_runtime.h>

#define INFINI_OPS_RUNTIME(name) mc##name

namespace infini::ops::cuda {

using Float16 = __half;
using BFloat16 = __maca_bfloat16;
using LaneMask = unsigned long long;  // its warps have 64 lanes

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_VENDOR_H_
