#ifndef INFINI_OPS_TORCH_KERNEL_H_
#define INFINI_OPS_TORCH_KERNEL_H_

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/Generator.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/OptionalArrayRef.h>
#include <c10/util/string_view.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "core/generated.h"

// How slot 8 calls ATen. The argument types of a function come from `at::_ops::abs_out::call`, so
// the same source supports every torch version. One translation unit instantiates one `Caller` for
// each of some 480 signatures. Code that needs no template is in `kernel.cc`.
//
// This header and the instantiations use tensors by address only. Including ATen/core/Tensor.h,
// List.h and IListRef.h costs 3 CPU-seconds.
//
// Tensors and lists of tensors are converted to `kForeignTensor` and `kForeignTensors` before a
// `Caller` gets them.
namespace infini::ops::torch_backend {

at::Scalar ToScalar(const Scalar& scalar);
std::vector<at::Scalar> ToScalars(const Argument& argument);
at::Device ToDevice(Device device);
// Throws `std::invalid_argument` for a type that only newer torch versions have.
at::ScalarType ToScalarType(DataType data_type);

// `To<T>` makes the argument of ATen type T, or an object that converts to it and lives until the
// end of the call.
template <typename T>
struct To {
  static_assert(sizeof(T) == 0,
                "slot 8 does not support a C++ type of an operator of this torch yet (T above): "
                "specialise To<T> in src/torch/kernel.h, or exclude the operator in "
                "codegen/torch_ops.yaml");
};

template <typename T>
struct ToNumber {
  static T From(const Argument& argument) { return argument.scalar.To<T>(); }
};
template <>
struct To<std::int64_t> : ToNumber<std::int64_t> {};
template <>
struct To<double> : ToNumber<double> {};
template <>
struct To<bool> : ToNumber<bool> {};

template <typename T>
struct ToEnumeration {
  static T From(const Argument& argument) {
    return static_cast<T>(argument.scalar.To<std::int64_t>());
  }
};
template <>
struct To<at::ScalarType> {
  static at::ScalarType From(const Argument& argument) {
    return ToScalarType(ToEnumeration<DataType>::From(argument));
  }
};
template <>
struct To<at::Layout> : ToEnumeration<at::Layout> {};
template <>
struct To<at::MemoryFormat> : ToEnumeration<at::MemoryFormat> {};
template <>
struct To<c10::DeviceIndex> : ToEnumeration<c10::DeviceIndex> {};

template <>
struct To<c10::SymInt> {
  static c10::SymInt From(const Argument& argument) { return To<std::int64_t>::From(argument); }
};
template <>
struct To<at::Scalar> {
  static at::Scalar From(const Argument& argument) { return ToScalar(argument.scalar); }
};
template <>
struct To<at::Device> {
  static at::Device From(const Argument& argument) { return ToDevice(argument.device); }
};
// A class of torch before version 2.6, `std::string_view` since then.
template <>
struct To<c10::string_view> {
  static c10::string_view From(const Argument& argument) {
    return c10::string_view(argument.string().data(), argument.string().size());
  }
};
template <>
struct To<at::Generator> {
  static const at::Generator& From(const Argument& argument) {
    return *argument.As<at::Generator>();
  }
};

// The argument for a `const T&`, where T is a class of tensors. `kernel.cc` makes and destroys it.
template <typename T>
class Hidden {
 public:
  explicit Hidden(const Argument& argument);
  ~Hidden();
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;

  operator const T&() const { return *value_; }

 private:
  alignas(void*) std::byte bytes_[3 * sizeof(void*)];
  T* value_;  // in `bytes_`
};
template <typename T>
struct ToHidden {
  static Hidden<T> From(const Argument& argument) { return Hidden<T>(argument); }
};
template <>
struct To<std::optional<at::Tensor>> : ToHidden<std::optional<at::Tensor>> {};
template <>
struct To<c10::List<std::optional<at::Tensor>>> : ToHidden<c10::List<std::optional<at::Tensor>>> {};
template <>
struct To<at::ITensorListRef> : ToHidden<at::ITensorListRef> {};

template <>
struct To<at::Tensor> {
  static at::Tensor& From(const Argument& argument) {
    return *const_cast<at::Tensor*>(argument.As<at::Tensor>());
  }
};
template <>
struct To<at::TensorList> {
  static at::TensorList From(const Argument& argument) {
    return {argument.As<at::Tensor>(), argument.size};
  }
};

template <>
struct To<at::IntArrayRef> {
  static at::IntArrayRef From(const Argument& argument) {
    return {argument.As<std::int64_t>(), argument.size};
  }
};
template <>
struct To<c10::SymIntArrayRef> {
  static c10::SymIntArrayRef From(const Argument& argument) {
    return c10::fromIntArrayRefSlow(To<at::IntArrayRef>::From(argument));
  }
};
template <>
struct To<at::ArrayRef<double>> {
  static at::ArrayRef<double> From(const Argument& argument) {
    return {argument.As<double>(), argument.size};
  }
};
template <>
struct To<at::ArrayRef<at::Scalar>> {
  static std::vector<at::Scalar> From(const Argument& argument) { return ToScalars(argument); }
};
template <std::size_t size>
struct To<std::array<bool, size>> {
  static std::array<bool, size> From(const Argument& argument) {
    std::array<bool, size> values;
    std::copy_n(argument.As<bool>(), size, values.begin());
    return values;
  }
};

template <typename T>
struct To<std::optional<T>> {
  static std::optional<T> From(const Argument& argument) {
    if (argument.tag == Argument::Tag::kNone) return std::nullopt;
    return To<T>::From(argument);
  }
};
template <typename T>
struct To<c10::OptionalArrayRef<T>> {
  static c10::OptionalArrayRef<T> From(const Argument& argument) {
    if (argument.tag == Argument::Tag::kNone) return std::nullopt;
    return To<c10::ArrayRef<T>>::From(argument);
  }
};

template <typename Schema>
struct Caller;

template <typename Return, typename... Types>
struct Caller<Return(Types...)> {
  static void Call(generated::TorchKernel::Function function, const Argument* arguments) {
    Call(reinterpret_cast<Return (*)(Types...)>(function), arguments,
         std::index_sequence_for<Types...>());
  }

 private:
  template <std::size_t... index>
  static void Call(Return (*function)(Types...), const Argument* arguments,
                   std::index_sequence<index...>) {
    function(To<std::decay_t<Types>>::From(arguments[index])...);
  }
};

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_KERNEL_H_
