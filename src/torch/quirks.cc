#include "torch/quirks.h"

#include <algorithm>
#include <iterator>

namespace infini::ops::torch_backend {
namespace {

// For torch 2.13, sorted; tests/ops/test_boundary_memory.py detects them.
constexpr std::string_view kIgnoresStrides[] = {
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_avg_pool3d_backward",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_backward",
    "avg_pool3d",
    "avg_pool3d_backward",
    "col2im",
    "fft_fftfreq",
    "fft_rfftfreq",
    "fractional_max_pool2d",
    "fractional_max_pool2d_backward",
    "fractional_max_pool3d",
    "fractional_max_pool3d_backward",
    "im2col",
    "internal_batch_norm_with_update",
    "internal_convert_indices_from_coo_to_csr",
    "internal_convert_indices_from_csr_to_coo",
    "internal_embedding_bag",
    "internal_embedding_bag_forward_only",
    "internal_int_mm",
    "internal_log_softmax",
    "internal_log_softmax_backward_data",
    "internal_masked_softmax",
    "internal_masked_softmax_backward",
    "internal_native_batch_norm_legit",
    "internal_scaled_mm",
    "internal_slow_conv2d_backward",
    "internal_slow_conv2d_forward",
    "internal_softmax",
    "internal_softmax_backward_data",
    "internal_weight_norm_interface",
    "internal_weight_norm_interface_backward",
    "lu_unpack",
    "max_pool3d_with_indices",
    "max_pool3d_with_indices_backward",
    "max_unpool2d",
    "max_unpool3d",
    "mkldnn_convolution",
    "narrow_copy",
    "native_batch_norm",
    "native_group_norm",
    "native_group_norm_backward",
    "reflection_pad2d",
    "reflection_pad2d_backward",
    "reflection_pad3d",
    "reflection_pad3d_backward",
    "replication_pad2d",
    "replication_pad2d_backward",
    "replication_pad3d",
    "replication_pad3d_backward",
    "slow_conv_transpose2d",
    "slow_conv_transpose3d",
    "thnn_conv2d",
    "upsample_bicubic2d_backward",
};

constexpr std::string_view kIgnoresOutStrides[] = {
    "linalg_matmul",
    "linear",
    "matmul",
};

constexpr std::string_view kIgnoresOverlap[] = {
    "bmm",
    "cummax",
    "cummin",
    "eye",
    "full",
    "glu_backward",
    "histc",
    "histogram",
    "internal_efficientzerotensor",
    "linalg_lu",
    "linalg_matrix_power",
    "linalg_vector_norm",
    "masked_select",
    "matrix_power",
    "multilabel_margin_loss",
    "multilabel_margin_loss_forward",
    "multinomial",
    "mv",
    "nll_loss2d",
    "nll_loss2d_forward",
    "nll_loss_backward",
    "norm",
    "ones",
    "prod",
    "randperm",
    "std",
    "threshold",
    "threshold_backward",
    "tril",
    "triu",
    "var",
    "zeros",
};

constexpr std::string_view kTrustsOuts[] = {
    "binary_cross_entropy", "binary_cross_entropy_backward",
    "huber_loss",           "log_sigmoid_forward",
    "rrelu_with_noise",     "soft_margin_loss",
};

constexpr std::string_view kTrustsDtype[] = {"internal_logcumsumexp"};

constexpr std::string_view kNeedsStep[] = {"range"};

template <typename Names>
bool Contains(const Names& names, std::string_view name) {
  return std::binary_search(std::begin(names), std::end(names), name);
}

}  // namespace

Quirk QuirkOf(std::string_view operator_name) {
  if (Contains(kIgnoresStrides, operator_name)) return Quirk::kIgnoresStrides;
  if (Contains(kIgnoresOutStrides, operator_name)) return Quirk::kIgnoresOutStrides;
  if (Contains(kIgnoresOverlap, operator_name)) return Quirk::kIgnoresOverlap;
  if (Contains(kTrustsOuts, operator_name)) return Quirk::kTrustsOuts;
  if (Contains(kTrustsDtype, operator_name)) return Quirk::kTrustsDtype;
  return Contains(kNeedsStep, operator_name) ? Quirk::kNeedsStep : Quirk::kNone;
}

}  // namespace infini::ops::torch_backend
