#include <ATen/Parallel.h>
#include <dlfcn.h>

#include "torch/foreign.h"

namespace infini::ops::torch_backend {
namespace {

using RunTeam = void (*)(void (*function)(void*), void* data, unsigned threads, unsigned flags);

// What `#pragma omp parallel` calls, in GNU's OpenMP library and those of LLVM and Intel. It is
// searched from torch's library on: a process can have several OpenMP libraries, each with threads
// of its own, and the compiler's would be another one.
RunTeam FindRunTeam() {
  Dl_info torch;
  if (!dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &torch)) return nullptr;
  void* const library = dlopen(torch.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return library ? reinterpret_cast<RunTeam>(dlsym(library, "GOMP_parallel")) : nullptr;
}

}  // namespace

int ThreadCount() { return at::get_num_threads(); }

bool RunOnAllThreads(void (*function)(void*), void* data) {
  static const RunTeam run_team = FindRunTeam();
  if (!run_team) return false;
  // 0 is as many as `torch.set_num_threads` has set. With another number, GNU's library would end
  // threads, and torch start them again.
  run_team(function, data, 0, 0);
  return true;
}

}  // namespace infini::ops::torch_backend
