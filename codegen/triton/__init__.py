"""
Compiles the kernels of src/triton/ops/<op>/kernel.py in each of the variants of build.py, and for
each target. CMake runs it when it configures with WITH_TRITON. No GPU is needed.

Writes for each operator triton/<op>.h, the C interface of its dispatcher, and triton/<op>.c, the
dispatcher with launchers and machine code; triton/targets.h; and triton/kernels.json: the
conditions, parameters and resources of each kernel.

Compiled kernels are kept, by the digest of all that they depend on, in ~/.cache/infini-ops/triton
or the folder that INFINI_OPS_TRITON_CACHE names; so does a dry run, which has to compile them, too.
"""
