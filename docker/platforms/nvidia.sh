sdk_root CUDA_HOME /usr/local/cuda
