// Generated from the ATen schema. Do not edit.
#ifndef INFINI_OPS_BASE_INTERNAL_NESTED_TENSOR_FROM_TENSOR_LIST_H_
#define INFINI_OPS_BASE_INTERNAL_NESTED_TENSOR_FROM_TENSOR_LIST_H_

#include "infini/ops/operator.h"

namespace infini::ops {

class InternalNestedTensorFromTensorList : public OperatorBase<InternalNestedTensorFromTensorList> {
 public:
  static constexpr char kName[] = "internal_nested_tensor_from_tensor_list";

  // _nested_tensor_from_tensor_list.out(Tensor[] list, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, *, Tensor(a!) out) -> Tensor(a!)
  static void Call(Span<Tensor> list, const std::optional<DataType>& dtype, const std::optional<Layout>& layout, const std::optional<Device>& device, const std::optional<bool>& pin_memory, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {list, dtype, layout, device, pin_memory, out}, options);
  }

  static void Call(Span<Tensor> list, const std::optional<DataType>& dtype, const std::optional<Layout>& layout, const std::optional<Device>& device, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {list, dtype, layout, device, std::nullopt, out}, options);
  }

  static void Call(Span<Tensor> list, const std::optional<DataType>& dtype, const std::optional<Layout>& layout, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {list, dtype, layout, std::nullopt, std::nullopt, out}, options);
  }

  static void Call(Span<Tensor> list, const std::optional<DataType>& dtype, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {list, dtype, std::nullopt, std::nullopt, std::nullopt, out}, options);
  }

  static void Call(Span<Tensor> list, const Tensor& out, const CallOptions& options = {}) {
    static const Overload& overload = FindOverload(kName, "out");
    Dispatch(overload, {list, std::nullopt, std::nullopt, std::nullopt, std::nullopt, out}, options);
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_BASE_INTERNAL_NESTED_TENSOR_FROM_TENSOR_LIST_H_
