// Convolution and attention, which torch passes to the device as whole operators.

#include <ATen/TensorOperators.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>

#include <cmath>
#include <limits>

#include "PrivateUse1NativeFunctions.h"
#include "tensors.h"

namespace simulated {

at::Tensor Kernels::convolution_overrideable(const at::Tensor& input, const at::Tensor& weight,
                                             const std::optional<at::Tensor>& bias,
                                             at::IntArrayRef stride, at::IntArrayRef padding,
                                             at::IntArrayRef dilation, bool transposed,
                                             at::IntArrayRef output_padding, int64_t groups) {
  const at::Device device = input.device();
  return ToDevice(at::convolution(OnHost(input), OnHost(weight), OnHost(bias), stride, padding,
                                  dilation, transposed, output_padding, groups),
                  device);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> Kernels::convolution_backward_overrideable(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> output_mask) {
  const at::Device device = grad_output.device();
  const auto [input_gradient, weight_gradient, bias_gradient] = at::convolution_backward(
      OnHost(grad_output), OnHost(input), OnHost(weight), weight.size(transposed ? 1 : 0) * groups,
      stride, padding, dilation, transposed, output_padding, groups, output_mask);
  return {ToDevice(input_gradient, device), ToDevice(weight_gradient, device),
          ToDevice(bias_gradient, device)};
}

namespace {

// The mask that attention adds to the products of queries and keys.
struct Attention {
  at::Tensor query, key, value;
  std::optional<at::Tensor> bias;
  bool is_causal;
  double scale;

  Attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
            const std::optional<at::Tensor>& bias, bool is_causal, std::optional<double> scale)
      : query(OnHost(query)),
        key(OnHost(key)),
        value(OnHost(value)),
        bias(bias && bias->defined() ? OnHost(bias) : std::nullopt),
        is_causal(is_causal),
        scale(scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))))) {}

  at::Tensor Scores() const {
    at::Tensor scores = at::matmul(query, key.transpose(-2, -1)) * scale;
    if (bias) scores = scores + *bias;
    if (!is_causal) return scores;
    const at::Tensor rows = at::arange(query.size(-2)).unsqueeze(-1);
    return scores.masked_fill(rows < at::arange(key.size(-2)),
                              -std::numeric_limits<double>::infinity());
  }
};

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
           at::Tensor, at::Tensor>
Kernels::_scaled_dot_product_fused_attention_overrideable(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& attn_bias, double dropout_p, bool is_causal,
    bool /*return_debug_mask*/, std::optional<double> scale) {
  TORCH_CHECK(dropout_p == 0, "the attention of the simulated device has no dropout");
  const at::Device device = query.device();
  const Attention attention(query, key, value, attn_bias, is_causal, scale);
  const at::Tensor scores = attention.Scores();
  const at::Tensor output = at::matmul(scores.softmax(-1), attention.value);
  const at::Tensor none = at::empty({0}, query.options().dtype(at::kLong));
  return {ToDevice(output, device),
          ToDevice(scores.logsumexp(-1), device),
          none,
          none,
          query.size(-2),
          key.size(-2),
          none,
          none,
          none};
}

// With P = exp(scores - logsumexp), as in FlashAttention, section 3 and appendix B:
// https://arxiv.org/abs/2205.14135
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>
Kernels::_scaled_dot_product_fused_attention_overrideable_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& attn_bias, std::array<bool, 4> grad_input_mask,
    const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& /*cum_seq_q*/,
    const at::Tensor& /*cum_seq_k*/, int64_t /*max_q*/, int64_t /*max_k*/, double /*dropout_p*/,
    bool is_causal, const at::Tensor& /*philox_seed*/, const at::Tensor& /*philox_offset*/,
    std::optional<double> scale) {
  const at::Device device = grad_out.device();
  const Attention attention(query, key, value, attn_bias, is_causal, scale);
  const at::Tensor gradient = OnHost(grad_out);
  const at::Tensor weights = (attention.Scores() - OnHost(logsumexp).unsqueeze(-1)).exp();
  const at::Tensor of_weights = at::matmul(gradient, attention.value.transpose(-2, -1));
  const at::Tensor of_scores = weights * (of_weights - (gradient * OnHost(out)).sum(-1, true));
  const auto wanted = [&](int position, const at::Tensor& host) {
    return grad_input_mask[position] ? ToDevice(host, device) : at::Tensor();
  };
  return {wanted(0, at::matmul(of_scores, attention.key) * attention.scale),
          wanted(1, at::matmul(of_scores.transpose(-2, -1), attention.query) * attention.scale),
          wanted(2, at::matmul(weights.transpose(-2, -1), gradient)),
          wanted(3, attention.bias ? of_scores.sum_to_size(attention.bias->sizes()) : of_scores)};
}

// For dropout and for queries that share keys, torch uses smaller operators.
int64_t Kernels::_fused_sdp_choice(const at::Tensor& /*query*/, const at::Tensor& /*key*/,
                                   const at::Tensor& /*value*/,
                                   const std::optional<at::Tensor>& /*attn_mask*/, double dropout_p,
                                   bool /*is_causal*/, std::optional<double> /*scale*/,
                                   bool enable_gqa) {
  const bool is_math = dropout_p > 0 || enable_gqa;
  return static_cast<int64_t>(is_math ? at::SDPBackend::math : at::SDPBackend::overrideable);
}

}  // namespace simulated

// `scaled_dot_product_attention` uses this table, not the dispatcher.
namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &simulated::Kernels::_fused_sdp_choice)
}
