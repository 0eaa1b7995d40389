#include <ATen/Parallel.h>

#include "torch/foreign.h"

namespace infini::ops::torch_backend {

int ThreadCount() { return at::get_num_threads(); }

}  // namespace infini::ops::torch_backend
