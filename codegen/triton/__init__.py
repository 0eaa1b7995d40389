"""``python -m codegen triton``: Triton kernels, compiled ahead of time into C sources."""
