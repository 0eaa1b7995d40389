#ifndef INFINI_OPS_BINDINGS_CALL_STORAGE_H_
#define INFINI_OPS_BINDINGS_CALL_STORAGE_H_

#include <Python.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <memory>
#include <vector>

#include "infini/ops/argument.h"

namespace infini::ops::bindings {

// More than any ATen schema has (30).
inline constexpr std::size_t kMaxParameters = 64;

// The arguments of one call and whatever they borrow. Empty containers cost nothing, so a
// call of torch tensors and numbers allocates no memory.
class CallStorage {
 public:
  CallStorage() = default;
  CallStorage(const CallStorage&) = delete;
  CallStorage& operator=(const CallStorage&) = delete;

  Argument& operator[](std::size_t index) {
    return *reinterpret_cast<Argument*>(&arguments_[index]);
  }
  Argument* arguments() { return reinterpret_cast<Argument*>(&arguments_[0]); }

  std::vector<std::int64_t>& AddIntegers(std::size_t size) { return Add(&integers_, size); }
  std::vector<double>& AddDoubles(std::size_t size) { return Add(&doubles_, size); }
  std::vector<Scalar>& AddScalars(std::size_t size) { return Add(&scalars_, size); }
  std::vector<Argument>& AddArguments(std::size_t size) { return Add(&lists_, size); }
  bool* AddBooleans(std::size_t size) {
    return booleans_.emplace_back(std::make_unique<bool[]>(size)).get();
  }

  // Keeps an object alive through the call.
  nanobind::handle Hold(nanobind::object object) { return held_.emplace_back(std::move(object)); }

  // Views an array, keeping it alive. `array` is any instance of `nanobind::ndarray`.
  const Tensor& AddView(nanobind::ndarray<nanobind::ro> array, Tensor view) {
    arrays_.push_back(std::move(array));
    return *views_.emplace_back(std::make_unique<Tensor>(std::move(view)));
  }

 private:
  template <typename T>
  static T& Add(std::vector<T>* lists, std::size_t size) {
    lists->emplace_back().reserve(size);
    return lists->back();
  }

  // Raw, since making 64 empty arguments would cost more than filling a few.
  static_assert(std::is_trivially_destructible_v<Argument>);
  std::array<std::aligned_storage_t<sizeof(Argument), alignof(Argument)>, kMaxParameters>
      arguments_;
  // Vectors of vectors: the elements stay where they are when the outer one grows.
  std::vector<std::vector<std::int64_t>> integers_;
  std::vector<std::vector<double>> doubles_;
  std::vector<std::vector<Scalar>> scalars_;
  std::vector<std::vector<Argument>> lists_;
  std::vector<std::unique_ptr<bool[]>> booleans_;
  std::vector<std::unique_ptr<Tensor>> views_;
  std::vector<nanobind::ndarray<nanobind::ro>> arrays_;
  std::vector<nanobind::object> held_;
};

}  // namespace infini::ops::bindings

#endif  // INFINI_OPS_BINDINGS_CALL_STORAGE_H_
