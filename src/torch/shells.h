#ifndef INFINI_OPS_TORCH_SHELLS_H_
#define INFINI_OPS_TORCH_SHELLS_H_

#include <ATen/core/Tensor.h>

#include <deque>

#include "infini/ops/tensor.h"

namespace infini::ops::torch_backend {

// A new torch tensor around the view's memory, which stays its owner's.
at::Tensor MakeAround(const Tensor& view);

// A torch tensor around memory that is not torch's, for one call after another: making one costs
// 170 ns, pointing this one elsewhere 30.
class Shell {
 public:
  // Throws `std::invalid_argument` for negative strides, which torch does not have.
  const at::Tensor& Around(const Tensor& view);

  // To be called after the call, also one that failed. What others keep, a dispatch mode of Python
  // for one, gets a copy of the memory, which the view's owner will free; memory of torch's own
  // that the call has left here is freed.
  void TakeBack();

 private:
  bool IsReusable(const Tensor& view) const;
  void PointAt(const Tensor& view);

  at::Tensor tensor_;
  c10::DispatchKeySet keys_;
  const void* lent_ = nullptr;  // the memory that `tensor_` was put around
};

// Lends the shells of this thread to one call. Calls that run inside it get others.
class ShellLoan {
 public:
  ShellLoan() : pool_(ThreadPool()), first_(pool_.lent) {}
  ~ShellLoan() {
    for (; pool_.lent > first_; --pool_.lent) pool_.shells[pool_.lent - 1].TakeBack();
  }
  ShellLoan(const ShellLoan&) = delete;
  ShellLoan& operator=(const ShellLoan&) = delete;

  const at::Tensor& Around(const Tensor& view) {
    if (pool_.lent == pool_.shells.size()) pool_.shells.emplace_back();
    return pool_.shells[pool_.lent++].Around(view);
  }

 private:
  struct Pool {
    std::deque<Shell> shells;  // a deque, so that the tensors stay where they are
    std::size_t lent = 0;
  };
  static Pool& ThreadPool() {
    static thread_local Pool pool;
    return pool;
  }

  Pool& pool_;
  const std::size_t first_;
};

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_SHELLS_H_
