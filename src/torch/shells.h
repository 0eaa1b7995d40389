#ifndef INFINI_OPS_TORCH_SHELLS_H_
#define INFINI_OPS_TORCH_SHELLS_H_

#include <ATen/core/Tensor.h>

#include <deque>

#include "infini/ops/tensor.h"

namespace infini::ops::torch_backend {

// Makes a torch tensor that uses the view's memory without owning it.
at::Tensor MakeAround(const Tensor& view);

// A reusable torch tensor for memory that torch does not own: creating one takes 170 ns, changing
// the pointer of this one 30.
class Shell {
 public:
  // Throws `std::invalid_argument` for negative strides, which torch does not support.
  const at::Tensor& Around(const Tensor& view);

  // Call this after the call, even if it failed. If other code keeps the tensor, a dispatch mode of
  // Python for example, it gets a copy of the memory, because the view's owner will free the
  // original. If the call has put memory of torch into the tensor, that memory is freed.
  void TakeBack();

 private:
  bool IsReusable(const Tensor& view) const;
  void PointAt(const Tensor& view);

  at::Tensor tensor_;
  c10::DispatchKeySet keys_;
  const void* lent_ = nullptr;  // the memory that `tensor_` uses
};

// Lends the shells of this thread to one call. Nested calls get others.
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
    std::deque<Shell> shells;  // a deque, so that tensors do not move
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
