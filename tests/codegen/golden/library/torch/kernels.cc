// Generated from the ATen schemas of torch TORCH. Do not edit.
#include "torch/kernel.h"

// From ATen/ops/*_ops.h, whose inclusion costs 3 CPU-seconds.
namespace at::_ops {

struct TORCH_API abs_out {
  static at::Tensor & call(const at::Tensor & self, at::Tensor & out);
};
struct TORCH_API abs_ {
  static at::Tensor & call(at::Tensor & self);
};
struct TORCH_API add_out {
  static at::Tensor & call(const at::Tensor & self, const at::Tensor & other, const at::Scalar & alpha, at::Tensor & out);
};
struct TORCH_API add_Scalar_out {
  static at::Tensor & call(const at::Tensor & self, const at::Scalar & other, const at::Scalar & alpha, at::Tensor & out);
};
struct TORCH_API bmm_out {
  static at::Tensor & call(const at::Tensor & self, const at::Tensor & mat2, at::Tensor & out);
};
struct TORCH_API bmm_dtype_out {
  static at::Tensor & call(const at::Tensor & self, const at::Tensor & mat2, at::ScalarType out_dtype, at::Tensor & out);
};
struct TORCH_API cat_out {
  static at::Tensor & call(const at::ITensorListRef & tensors, int64_t dim, at::Tensor & out);
};
struct TORCH_API clamp_out {
  static at::Tensor & call(const at::Tensor & self, const ::std::optional<at::Scalar> & min, const ::std::optional<at::Scalar> & max, at::Tensor & out);
};
struct TORCH_API clamp_Tensor_out {
  static at::Tensor & call(const at::Tensor & self, const ::std::optional<at::Tensor> & min, const ::std::optional<at::Tensor> & max, at::Tensor & out);
};
struct TORCH_API clone_out {
  static at::Tensor & call(const at::Tensor & self, ::std::optional<at::MemoryFormat> memory_format, at::Tensor & out);
};
struct TORCH_API fft_fft2_out {
  static at::Tensor & call(const at::Tensor & self, at::OptionalSymIntArrayRef s, at::IntArrayRef dim, ::std::optional<c10::string_view> norm, at::Tensor & out);
};
struct TORCH_API gelu_ {
  static at::Tensor & call(at::Tensor & self, c10::string_view approximate);
};
struct TORCH_API index_put_ {
  static at::Tensor & call(at::Tensor & self, const c10::List<::std::optional<at::Tensor>> & indices, const at::Tensor & values, bool accumulate);
};
struct TORCH_API _foreach_add_Scalar_out {
  static void call(at::TensorList self, const at::Scalar & scalar, at::TensorList out);
};
struct TORCH_API _foreach_add_List_out {
  static void call(at::TensorList self, at::TensorList other, const at::Scalar & alpha, at::TensorList out);
};
struct TORCH_API _foreach_add_ScalarList_out {
  static void call(at::TensorList self, at::ArrayRef<at::Scalar> scalars, at::TensorList out);
};
struct TORCH_API _foreach_add_Tensor_out {
  static void call(at::TensorList self, const at::Tensor & other, const at::Scalar & alpha, at::TensorList out);
};
struct TORCH_API _nested_tensor_from_tensor_list_out {
  static at::Tensor & call(at::TensorList list, ::std::optional<at::ScalarType> dtype, ::std::optional<at::Layout> layout, ::std::optional<at::Device> device, ::std::optional<bool> pin_memory, at::Tensor & out);
};
struct TORCH_API _softmax_out {
  static at::Tensor & call(const at::Tensor & self, int64_t dim, bool half_to_float, at::Tensor & out);
};
struct TORCH_API linear_backward_out {
  static ::std::tuple<at::Tensor &,at::Tensor &,at::Tensor &> call(const at::Tensor & self, const at::Tensor & grad_output, const at::Tensor & weight, ::std::array<bool,3> output_mask, at::Tensor & out0, at::Tensor & out1, at::Tensor & out2);
};
struct TORCH_API mean_dtype_out {
  static at::Tensor & call(const at::Tensor & self, ::std::optional<at::ScalarType> dtype, at::Tensor & out);
};
struct TORCH_API mean_out {
  static at::Tensor & call(const at::Tensor & self, at::OptionalIntArrayRef dim, bool keepdim, ::std::optional<at::ScalarType> dtype, at::Tensor & out);
};
struct TORCH_API normal_Tensor_float_out {
  static at::Tensor & call(const at::Tensor & mean, double std, ::std::optional<at::Generator> generator, at::Tensor & out);
};
struct TORCH_API normal_float_Tensor_out {
  static at::Tensor & call(double mean, const at::Tensor & std, ::std::optional<at::Generator> generator, at::Tensor & out);
};
struct TORCH_API normal_Tensor_Tensor_out {
  static at::Tensor & call(const at::Tensor & mean, const at::Tensor & std, ::std::optional<at::Generator> generator, at::Tensor & out);
};
struct TORCH_API normal_float_float_out {
  static at::Tensor & call(double mean, double std, c10::SymIntArrayRef size, ::std::optional<at::Generator> generator, at::Tensor & out);
};
struct TORCH_API normal_out {
  static at::Tensor & call(const at::Tensor & self, double mean, double std, ::std::optional<at::Generator> generator, at::Tensor & out);
};
struct TORCH_API random__from {
  static at::Tensor & call(at::Tensor & self, int64_t from, ::std::optional<int64_t> to, ::std::optional<at::Generator> generator);
};
struct TORCH_API random__to {
  static at::Tensor & call(at::Tensor & self, int64_t to, ::std::optional<at::Generator> generator);
};
struct TORCH_API random_ {
  static at::Tensor & call(at::Tensor & self, ::std::optional<at::Generator> generator);
};
struct TORCH_API topk_values {
  static ::std::tuple<at::Tensor &,at::Tensor &> call(const at::Tensor & self, c10::SymInt k, int64_t dim, bool largest, bool sorted, at::Tensor & values, at::Tensor & indices);
};
struct TORCH_API upsample_nearest2d_out {
  static at::Tensor & call(const at::Tensor & self, c10::SymIntArrayRef output_size, ::std::optional<double> scales_h, ::std::optional<double> scales_w, at::Tensor & out);
};
struct TORCH_API upsample_nearest2d_vec_out {
  static at::Tensor & call(const at::Tensor & input, at::OptionalSymIntArrayRef output_size, ::std::optional<at::ArrayRef<double>> scale_factors, at::Tensor & out);
};

}  // namespace at::_ops

namespace infini::ops::generated {

using torch_backend::Caller;

#define KERNEL(name)                               \
  {Caller<decltype(at::_ops::name::call)>::Call,   \
   reinterpret_cast<TorchKernel::Function>(at::_ops::name::call)}

// In the order of the operator table.
extern const TorchKernel kTorchKernels[] = {
    KERNEL(abs_out),
    KERNEL(abs_),
    KERNEL(add_out),
    KERNEL(add_Scalar_out),
    KERNEL(bmm_out),
    KERNEL(bmm_dtype_out),
    KERNEL(cat_out),
    KERNEL(clamp_out),
    KERNEL(clamp_Tensor_out),
    KERNEL(clone_out),
    KERNEL(fft_fft2_out),
    KERNEL(gelu_),
    KERNEL(index_put_),
    KERNEL(_foreach_add_Scalar_out),
    KERNEL(_foreach_add_List_out),
    KERNEL(_foreach_add_ScalarList_out),
    KERNEL(_foreach_add_Tensor_out),
    KERNEL(_nested_tensor_from_tensor_list_out),
    KERNEL(_softmax_out),
    KERNEL(linear_backward_out),
    KERNEL(mean_dtype_out),
    KERNEL(mean_out),
    KERNEL(normal_Tensor_float_out),
    KERNEL(normal_float_Tensor_out),
    KERNEL(normal_Tensor_Tensor_out),
    KERNEL(normal_float_float_out),
    KERNEL(normal_out),
    KERNEL(random__from),
    KERNEL(random__to),
    KERNEL(random_),
    KERNEL(topk_values),
    KERNEL(upsample_nearest2d_out),
    KERNEL(upsample_nearest2d_vec_out),
};

}  // namespace infini::ops::generated
