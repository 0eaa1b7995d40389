"""The variants of fused_add_rms_norm, whose outs are the inputs."""

from codegen.triton.rows import added_norm

OPERATOR = added_norm()
