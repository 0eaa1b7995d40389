"""
Compiles the kernels of src/triton/ops/<op>/kernel.py: every variant that build.py lists, for every
target. CMake runs it at configure time if WITH_TRITON is ON. No GPU is needed.

Writes for each operator triton/<op>.h, the C interface of its dispatcher, and triton/<op>.c, the
dispatcher with launchers and machine code. Also writes triton/targets.h, and triton/kernels.json
with the conditions, parameters and resources of each kernel.

Compiled kernels are cached in ~/.cache/infini-ops/triton, or in the folder that
INFINI_OPS_TRITON_CACHE names. The cache key is a digest of everything that affects a kernel. A dry
run uses the cache too, because it has to compile the kernels.
"""
