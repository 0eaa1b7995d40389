#ifndef INFINI_OPS_BINDINGS_CALL_STORAGE_H_
#define INFINI_OPS_BINDINGS_CALL_STORAGE_H_

#include <Python.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <memory>
#include <string>
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

  // Views an array that `source` gave, keeping it alive. `array` is any instance of
  // `nanobind::ndarray`.
  const Tensor& AddView(PyObject* source, bool is_writable, nanobind::ndarray<nanobind::ro> array,
                        Tensor view) {
    Array& added = arrays_.emplace_back(
        Array{source, is_writable, std::move(array), std::make_unique<Tensor>(std::move(view))});
    return *added.view;
  }

  // The view of an array that this call has taken from `source` already, for another parameter or
  // overload: a DLPack capsule gives its array only once. nullptr where there is none.
  const Tensor* FindView(PyObject* source, bool is_writable) const {
    for (const Array& array : arrays_) {
      if (array.source == source && (array.is_writable || !is_writable)) return array.view.get();
    }
    return nullptr;
  }

  // Why an object that looks like a tensor is taken for none; for the message of a call that fits
  // no overload.
  void AddRefusal(std::string text) {
    if (refusals_.find(text) == std::string::npos) refusals_ += "\n  " + text;
  }
  const std::string& refusals() const { return refusals_; }

 private:
  struct Array {
    PyObject* source;
    bool is_writable;
    nanobind::ndarray<nanobind::ro> array;
    std::unique_ptr<Tensor> view;
  };

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
  std::vector<Array> arrays_;
  std::vector<nanobind::object> held_;
  std::string refusals_;
};

}  // namespace infini::ops::bindings

#endif  // INFINI_OPS_BINDINGS_CALL_STORAGE_H_
