#ifndef INFINI_OPS_CUDA_VENDOR_H_
#define INFINI_OPS_CUDA_VENDOR_H_

// Moore Threads. Never compiled, because no SDK was available.
#include <musa_bf16.h>
#include <musa_fp16.h>
#include <musa_runtime.h>

#define INFINI_OPS_RUNTIME(name) musa##name

namespace infini::ops::cuda {

using Float16 = __half;
using BFloat16 = __mt_bfloat16;
using LaneMask = unsigned int;

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_VENDOR_H_
