#ifndef INFINI_OPS_BINDINGS_CALL_STORAGE_H_
#define INFINI_OPS_BINDINGS_CALL_STORAGE_H_

#include <Python.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/python.h"
#include "infini/ops/argument.h"

namespace infini::ops::bindings {

// ATen schemas have at most 30 parameters.
inline constexpr std::size_t kMaxParameters = 64;

// The arguments of one call, and the objects that they refer to. Empty containers cost nothing, so
// a call with torch tensors and numbers allocates no memory.
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

  // Keeps an object alive during the call.
  PyObject* Hold(Object object) { return held_.emplace_back(std::move(object)).get(); }

  // Keeps the array of `source` alive, and returns its view.
  const Tensor& AddArray(PyObject* source, bool is_writable, Array array) {
    auto added = std::make_unique<Array>(std::move(array));
    return arrays_.emplace_back(Import{source, is_writable, std::move(added)}).array->view;
  }

  // A view of `source` that this call has already made for another parameter or overload; nullptr
  // if there is none. A DLPack capsule provides its array only once.
  const Tensor* FindView(PyObject* source, bool is_writable) const {
    for (const Import& import : arrays_) {
      if (import.source == source && (import.is_writable || !is_writable)) {
        return &import.array->view;
      }
    }
    return nullptr;
  }

  // Records why an object that looks like a tensor can't be used as one, for the error of a call
  // that fits no overload.
  void AddRefusal(std::string text) {
    if (refusals_.find(text) == std::string::npos) refusals_ += "\n  " + text;
  }
  const std::string& refusals() const { return refusals_; }

 private:
  struct Import {
    PyObject* source;
    bool is_writable;
    std::unique_ptr<Array> array;
  };

  template <typename T>
  static T& Add(std::vector<T>* lists, std::size_t size) {
    lists->emplace_back().reserve(size);
    return lists->back();
  }

  // Raw storage: constructing 64 empty arguments takes longer than filling a few.
  static_assert(std::is_trivially_destructible_v<Argument>);
  std::array<std::aligned_storage_t<sizeof(Argument), alignof(Argument)>, kMaxParameters>
      arguments_;
  // Vectors of vectors: the elements do not move when the outer vector grows.
  std::vector<std::vector<std::int64_t>> integers_;
  std::vector<std::vector<double>> doubles_;
  std::vector<std::vector<Scalar>> scalars_;
  std::vector<std::vector<Argument>> lists_;
  std::vector<std::unique_ptr<bool[]>> booleans_;
  std::vector<Import> arrays_;
  std::vector<Object> held_;
  std::string refusals_;
};

}  // namespace infini::ops::bindings

#endif  // INFINI_OPS_BINDINGS_CALL_STORAGE_H_
