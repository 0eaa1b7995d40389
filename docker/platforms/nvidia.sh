# Where the SDK is in images of this platform.
sdk_root CUDA_HOME /usr/local/cuda
