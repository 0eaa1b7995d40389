"""Calls written by hand, of overloads that take and give ordinary, strided tensors.

Each row names overloads and arguments; an overload takes those that it knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .values import BlankValue

Call = dict[str, Any]
Rows = Iterator[tuple[str, Call]]


def _factories() -> Rows:
    yield "randperm.out tril_indices.out triu_indices.out", {"n": 7, "row": 3, "col": 4}
    yield "randperm.generator_out", {"n": 7, "generator": None}
    yield "range.out_ range.out", {"start": 1, "end": 6}
    yield "range.out", {"start": 0.5, "end": 7.0, "step": 1.5}
    yield "rand.generator_out randn.generator_out", {"size": [3, 4], "generator": None}
    yield "randint.generator_out", {"high": 90, "size": [3, 4], "generator": None}
    yield "randint.low_generator_out", {"low": 5, "high": 90, "size": [3], "generator": None}
    for kind in ("bartlett", "blackman", "hann", "hamming", "kaiser"):
        yield f"{kind}_window.out", {"window_length": 8}
        yield f"{kind}_window.periodic_out", {"window_length": 8, "periodic": False}
    yield "hamming_window.periodic_alpha_out", {"window_length": 8, "periodic": True, "alpha": 0.6}
    hamming = {"window_length": 8, "periodic": True, "alpha": 0.6, "beta": 0.4}
    yield "hamming_window.periodic_alpha_beta_out", hamming
    yield "kaiser_window.beta_out", {"window_length": 8, "periodic": True, "beta": 9.0}
    yield "fft_fftfreq.out fft_rfftfreq.out", {"n": 6, "d": 0.5}


def _random() -> Rows:
    for dtype in (torch.float32, torch.int64, torch.bool):
        yield "random_ random.out", {"self": torch.zeros(3, 4, dtype=dtype)}
    yield "random_.from random.from_out", {"self": torch.zeros(8), "from": 5, "to": 50}
    yield "random_.to random.to_out", {"self": torch.zeros(8), "to": 50}
    for kind in ("rand", "randn"):
        yield f"{kind}_like.out", {"self": torch.zeros(3, 4)}
        yield f"{kind}_like.generator_out", {"self": torch.zeros(3, 4), "generator": None}
    yield "randint_like.generator_out", {"self": torch.zeros(9), "high": 50, "generator": None}
    bounds = {"self": torch.zeros(9), "low": 5, "high": 50, "generator": None}
    yield "randint_like.low_generator_dtype_out", bounds
    bound = {"self": torch.zeros(9), "high": torch.tensor(50), "generator": None}
    yield "randint_like.Tensor_generator_out", bound
    yield "bernoulli_.Tensor bernoulli.Tensor_out", {"self": torch.zeros(9), "p": torch.rand(9)}
    yield "poisson.out _standard_gamma.out _sample_dirichlet.out", {"self": torch.rand(3, 4) + 4}
    yield "binomial.out", {"count": torch.full((9,), 10.0), "prob": torch.rand(9)}
    key = torch.tensor([1, 2], dtype=torch.uint64)
    philox = {"self": torch.zeros(3, 4), "key": key}
    yield "_philox_normal_ _philox_uniform_", philox
    filled = philox | {"out": BlankValue("float32", (3, 4))}
    yield "_philox_normal.out _philox_uniform.out", filled


def _pointwise() -> Rows:
    left, right = torch.tensor([12, -18, 7, 40]), torch.tensor([8, 27, 21, 3])
    for name in ("__ior__", "__ixor__", "bitwise_or_", "bitwise_xor_"):
        yield f"{name}.Tensor", {"self": left, "other": right}
        yield f"{name}.Scalar", {"self": left, "other": 5}
    yield "gcd_ gcd.out lcm_ lcm.out bitwise_xor.Tensor_out", {"self": left, "other": right}
    yield "bitwise_xor.Scalar_out", {"self": left, "other": 5}
    few = torch.tensor([1, 2, 3, 1])
    for side in ("left", "right"):
        short = f"__{side[0]}shift__"
        in_place = f"__i{side[0]}shift__"
        names = f"bitwise_{side}_shift_.Tensor bitwise_{side}_shift.Tensor_out"
        yield f"{names} {in_place}.Tensor {short}.Tensor_out", {"self": left, "other": few}
        names = f"bitwise_{side}_shift_.Tensor_Scalar bitwise_{side}_shift.Tensor_Scalar_out"
        yield f"{names} {in_place}.Scalar {short}.Scalar_out", {"self": left, "other": 2}
        yield f"bitwise_{side}_shift.Scalar_Tensor_out", {"self": 77, "other": few}
    yield "bitwise_xor.Scalar_Tensor_out", {"self": 77, "other": few}
    yield "isin.Tensor_Scalar_out", {"elements": left, "test_element": 7}
    yield "isin.Scalar_Tensor_out", {"element": 7, "test_elements": left}
    odd = torch.tensor([1.5, float("nan"), float("inf"), -float("inf")])
    yield "nan_to_num_", {"self": odd, "nan": 2.0, "posinf": 3.0}
    doubles = {"self": torch.rand(4, dtype=torch.float64), "exponent": torch.rand(4)}
    yield "float_power_.Tensor", doubles
    yield "float_power_.Scalar", doubles | {"exponent": 3}
    signed = {"self": torch.randn(3, 4), "other": torch.randn(3, 4)}
    yield "_add_relu_.Tensor _add_relu.out _test_functorch_fallback.out", signed
    yield "_add_relu_.Scalar _add_relu.Scalar_out", {"self": torch.randn(3, 4), "other": -0.25}


def _matrices() -> Rows:
    square = torch.randn(4, 4)
    yield "chain_matmul.out", {"matrices": [torch.randn(2, 3), torch.randn(3, 4), square]}
    tall = {"self": torch.randn(5, 3), "b": torch.randn(5, 2)}
    for driver in ("gels", "gelsd", "gelss"):
        yield "linalg_lstsq.out", tall | {"driver": driver}
    yield "fill_diagonal_", {"self": square, "fill_value": 9.0}
    yield "slogdet.out nuclear_norm.out", {"self": square}
    yield "nuclear_norm.dim_out frobenius_norm.out", {"self": square, "dim": [0, 1]}
    yield "linalg_cond.p_str_out", {"self": square, "p": "fro"}
    yield "linalg_matrix_rank.out", {"self": square, "tol": 0.1}
    yield "linalg_matrix_rank.out_tol_tensor", {"input": square, "tol": torch.tensor(0.1)}
    yield "norm.ScalarOpt_dtype_out", {"self": square, "p": 2.0, "dtype": torch.float32}
    norm = {"self": square, "p": 2.0, "dim": [1], "keepdim": True, "dtype": torch.float32}
    yield "norm.dtype_out", norm
    left, right = torch.randint(-9, 9, (32, 32)).to(torch.int8), torch.ones(32, 32).to(torch.int8)
    yield "_int_mm.out", {"self": left, "mat2": right}
    coefficients = {"input": torch.randn(3, 2, 2), "coefficients": torch.randn(2, 3)}
    yield "_compute_linear_combination.out", coefficients
    activation = {"self": torch.randn(3), "mat1": torch.randn(2, 4), "mat2": torch.randn(4, 3)}
    yield "_addmm_activation.out", activation
    definite = square @ square.T + torch.eye(4)
    solve = {"self": torch.randn(4, 2), "A": torch.linalg.cholesky(definite), "upper": False}
    yield "_cholesky_solve_helper.out", solve
    scaled: Call = {
        "self": torch.randn(16, 32).to(torch.float8_e4m3fn),
        "mat2": torch.randn(16, 32).to(torch.float8_e4m3fn).t(),
        "scale_a": torch.tensor(1.5),
        "scale_b": torch.tensor(0.5),
        "out_dtype": torch.float32,
    }
    yield "_scaled_mm.out", scaled
    lists = {"scale_a": [scaled["scale_a"]], "scale_b": [scaled["scale_b"]], "bias": None}
    recipe = {"recipe_a": [0], "swizzle_a": [0], "recipe_b": [0], "swizzle_b": [0]}
    yield "_scaled_mm_v2.out", scaled | lists | recipe


def _convolutions() -> Rows:
    image, kernel, bias = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 2, 2), torch.randn(4)
    plane = {"self": image, "weight": kernel, "bias": bias, "kernel_size": [2, 2]}
    names = "thnn_conv2d.out slow_conv_dilated2d.out _slow_conv2d_forward.output"
    yield names, plane | {"stride": [2, 2], "padding": [1, 1]}
    transposed = plane | {"weight": torch.randn(3, 4, 2, 2)}
    yield "slow_conv_transpose2d.out", transposed
    sizes = {"kernel_size": [2, 2], "stride": [1, 1], "padding": [0, 0]}
    backward = {"grad_output": torch.randn(2, 4, 5, 5), "self": image, "weight": kernel} | sizes
    yield "_slow_conv2d_backward.grad_input", backward
    yield "_slow_conv2d_backward.output_mask_out", backward | {"output_mask": [True, True, True]}
    volume: Call = {
        "self": torch.randn(1, 2, 4, 4, 4),
        "weight": torch.randn(3, 2, 2, 2, 2),
        "bias": torch.randn(3),
        "kernel_size": [2, 2, 2],
        "stride": [1, 1, 1],
        "padding": [0, 0, 0],
    }
    yield "slow_conv3d.out slow_conv3d_forward.output slow_conv_dilated3d.out", volume
    yield "slow_conv_transpose3d.out", volume | {"weight": torch.randn(2, 3, 2, 2, 2)}
    geometry = {"kernel_size": [2, 2], "dilation": [1, 1], "padding": [0, 0], "stride": [1, 1]}
    yield "im2col.out", {"self": image} | geometry
    yield "col2im.out", {"self": torch.randn(2, 12, 25), "output_size": [6, 6]} | geometry
    tbc = {"self": torch.randn(5, 2, 3), "weight": torch.randn(2, 3, 4), "bias": bias}
    yield "conv_tbc.out", tbc
    general = {"input": image, "weight": kernel, "bias": bias, "groups": 1, "transposed": False}
    geometry = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "output_padding": [0, 0]}
    flags = ("benchmark", "deterministic", "cudnn_enabled", "allow_tf32")
    yield "_convolution.out", general | geometry | dict.fromkeys(flags, False)
    yield "_nnpack_spatial_convolution.out", general | geometry
    yield "mkldnn_convolution.out", general | {"self": image} | geometry
    resize: Call = {"self": image, "output_size": [3, 4], "align_corners": False}
    yield "_upsample_bicubic2d_aa.out _upsample_lanczos2d_aa.out", resize
    resized = resize | {"grad_output": torch.randn(2, 3, 3, 4), "input_size": [2, 3, 6, 6]}
    kinds = ("bicubic", "lanczos")
    yield " ".join(f"_upsample_{kind}2d_aa_backward.grad_input" for kind in kinds), resized
    grid = {"input": image, "grid": torch.rand(2, 3, 3, 2), "align_corners": False}
    modes = {"interpolation_mode": 0, "padding_mode": 0}
    yield "_grid_sampler_2d_cpu_fallback.out", grid | modes
    theta = {"theta": torch.randn(2, 2, 3), "size": [2, 3, 4, 4], "align_corners": False}
    yield "affine_grid_generator.out", theta


def _normalizations() -> Rows:
    batch = {"input": torch.randn(3, 4, 2), "weight": torch.randn(4), "bias": torch.randn(4)}
    running = {"running_mean": torch.randn(4), "running_var": torch.rand(4), "momentum": 0.1}
    yield "batch_norm_update_stats.out _batch_norm_no_update.out", batch | running | {"eps": 1e-5}
    weight, scale = torch.randn(4, 3), torch.rand(4, 1)
    yield "_weight_norm_interface.out", {"v": weight, "g": scale}
    saved = {"saved_v": weight, "saved_g": scale, "saved_norms": torch.rand(4, 1), "dim": 0}
    yield "_weight_norm_interface_backward.out", saved | {"grad_w": torch.randn(4, 3)}
    mask = {"self": torch.randn(2, 4), "mask": torch.tensor([[True, False, False, True]] * 2)}
    yield "_masked_softmax.out", mask | {"dim": 1}
    softmax = {"grad_output": torch.randn(2, 4), "output": torch.rand(2, 4), "dim": 1}
    yield "_masked_softmax_backward.out", mask | softmax
    renorm = {"self": torch.randn(5, 3) * 9, "indices": torch.tensor([0, 3]), "norm_type": 2.0}
    yield "embedding_renorm_ embedding_renorm.out", renorm | {"max_norm": 1.0}
    losses: Call = {
        "log_probs": torch.randn(6, 2, 4).log_softmax(2),
        "targets": torch.tensor([[1, 2], [3, 1]]),
        "input_lengths": [6, 6],  # a shorter one leaves part of log_alpha uninitialized
        "target_lengths": [2, 2],
    }
    yield "_ctc_loss.out", losses
    lengths = {"input_lengths": torch.tensor([6, 6]), "target_lengths": torch.tensor([2, 2])}
    yield "_ctc_loss.Tensor_out", losses | lengths
    backward = {"grad": torch.rand(2), "neg_log_likelihood": torch.rand(2) + 5, "blank": 0}
    yield "_ctc_loss_backward.out", losses | backward | {"log_alpha": torch.randn(2, 6, 5) - 5}


def _others() -> Rows:
    index = {"self": torch.randn(3, 4), "dim": 0, "index": torch.tensor([[0, 2, 1, 0]])}
    source = index | {"src": torch.randn(1, 4)}
    for kind in ("add", "multiply"):
        yield "scatter_.reduce scatter.reduce_out", source | {"reduce": kind}
        value = index | {"value": 2.5, "reduce": kind}
        yield "scatter_.value_reduce scatter.value_reduce_out", value
    put = {"self": torch.randn(5), "indices": [torch.tensor([0, 3])], "values": torch.randn(2)}
    yield "_index_put_impl_ _index_put_impl.out", put
    yield "slice_scatter.out", {"self": torch.randn(5, 3), "src": torch.randn(2, 3), "end": 2}
    yield "unsafe_split_with_sizes.out", {"self": torch.randn(5, 2), "split_sizes": [2, 3]}
    repeated = {"self": torch.tensor([[1, 2], [1, 2], [3, 4]]), "dim": 0}
    yield "unique_dim_consecutive.out", repeated | {"return_inverse": True, "return_counts": True}
    yield "bincount.out", {"self": torch.tensor([0, 3, 1, 3]), "minlength": 6}
    weighted = {"self": torch.tensor([0, 3, 1, 3]), "weights": torch.rand(4)}
    yield "bincount.out", weighted
    yield "_convert_indices_from_coo_to_csr.out", {"self": torch.tensor([0, 2, 2]), "size": 4}
    pointers = {"crow_indices": torch.tensor([0, 1, 3]), "col_indices": torch.tensor([1, 0, 2])}
    yield "_convert_indices_from_csr_to_coo.out", pointers
    shrinking = {"self": torch.randn(3, 4), "size": [2, 3], "the_template": torch.randn(6)}
    yield "resize_ resize.out resize_as_ resize_as.out", shrinking
    yield "set_ set_.source_Tensor", {"self": torch.randn(3), "source": torch.randn(2)}
    part = {"storage_offset": 1, "size": [2, 3], "stride": [3, 1]}
    placed = {"self": torch.randn(3), "source": torch.randn(9)} | part
    yield "set_.source_Tensor_storage_offset", placed
    replaced = {"self": torch.randn(3), "source": torch.randn(4), "out": torch.randn(2)}
    yield "set.out set.source_Tensor_out", replaced
    yield "view_copy.dtype_out", {"self": torch.randn(3, 4), "dtype": torch.int32}
    yield "lift.out _neg_view_copy.out _test_warn_in_autograd.out", {"self": torch.randn(3, 4)}
    multiple = "_test_autograd_multiple_dispatch"
    names = f"{multiple}.fullcoverage_out {multiple}_view_copy.out _foobar.out"
    yield names, {"self": torch.randn(3, 4)}
    yield "_reshape_alias_copy.out", {"self": torch.randn(3, 4), "size": [4, 3], "stride": [3, 1]}
    like = {"self": torch.randn(3), "other": torch.randn(2, 2)}
    yield "_new_zeros_with_same_feature_meta.out", like
    counts = {"values": torch.tensor([1, 2], dtype=torch.int32), "addends": [10, 20]}
    yield "_test_optional_intlist.out _test_optional_filled_intlist.out", counts
    yield "_test_optional_floatlist.out", {"values": torch.rand(2), "addends": [1.5, 2.5]}
    glu = {"glu": torch.randn(2, 2), "x": torch.randn(2, 4), "dx": torch.randn(2, 4), "dim": 1}
    yield "glu_jvp.out", glu
    second = {"grad_x": torch.randn(2, 4), "grad_glu": torch.randn(2, 2)}
    yield "glu_backward_jvp.out", glu | second | {"dgrad_glu": torch.randn(2, 2)}
    packed = {"input": torch.randn(4, 3, 2), "lengths": torch.tensor([4, 2, 1])}
    yield "_pack_padded_sequence.out", packed | {"batch_first": False}
    yield "_standard_gamma_grad.out", {"self": torch.rand(4) + 1, "output": torch.rand(4)}
    total = torch.rand(2, 3) + 1
    yield "_dirichlet_grad.out", {"x": torch.rand(2, 3), "alpha": total, "total": total + 2}
    heads = {"qkv": torch.randn(2, 3, 12), "qkv_bias": torch.randn(12), "num_heads": 2}
    yield "_transform_bias_rescale_qkv.out", heads


def _uninitialized() -> Rows:
    """Overloads with undefined results: these calls have no elements, or write none."""
    out = {"out": torch.randn(3, 4)}
    yield "empty.out", {"size": [2, 3]} | out
    none = {"self": torch.randn(0, 3), "size": [0, 3], "stride": [3, 1], "physical_layout": [1, 0]}
    names = "empty_like.out empty_permuted.out empty_strided.out new_empty.out"
    yield f"{names} new_empty_strided.out", none | out


def _mixed_precision() -> Rows:
    unscaled = {"self": [torch.randn(3), torch.randn(2, 2)], "inv_scale": torch.tensor(0.5)}
    found = {"found_inf": torch.tensor(0.0)}
    name = "_amp_foreach_non_finite_check_and_unscale"
    yield f"{name}_ {name}.out", unscaled | found
    infinite = {"self": [torch.tensor([1.0, float("inf")])]}
    yield f"{name}_ {name}.out", unscaled | found | infinite
    factors = {"scale_growth_factor": 2.0, "scale_backoff_factor": 0.5, "growth_interval": 10}
    growth = {"self": torch.tensor(2.0), "growth_tracker": torch.tensor(3, dtype=torch.int32)}
    for found_inf in (0.0, 1.0):
        scale = growth | factors | {"found_inf": torch.tensor(found_inf)}
        yield "_amp_update_scale_ _amp_update_scale.out", scale


def _fake_quantization() -> Rows:
    number: Call = {"self": torch.randn(3, 4), "scale": 0.1, "zero_point": 3}
    number |= {"quant_min": 0, "quant_max": 20}
    yield "fake_quantize_per_tensor_affine_cachemask.out", number
    one = {"scale": torch.tensor([0.1]), "zero_point": torch.tensor([3.0])}
    yield "_fake_quantize_learnable_per_tensor_affine.out", number | one
    enabled = {"zero_point": torch.tensor([3], dtype=torch.int32)}
    enabled |= {"fake_quant_enabled": torch.tensor([1])}
    name = "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.out"
    yield name, number | one | enabled
    channels = {"scale": torch.rand(4) + 0.1, "zero_point": torch.tensor([0.0, 3, 7, 10])}
    yield "_fake_quantize_learnable_per_channel_affine.out", number | channels | {"axis": 1}
    whole = channels | {"zero_point": torch.tensor([0, 3, 7, 10], dtype=torch.int32)}
    yield "fake_quantize_per_channel_affine_cachemask.out", number | whole | {"axis": 1}
    observed: Call = {
        "self": torch.randn(3, 4),
        "observer_on": torch.tensor([1]),
        "fake_quant_on": torch.tensor([1]),
        "running_min": torch.tensor([-0.5]),
        "running_max": torch.tensor([0.5]),
        "scale": torch.tensor([0.1]),
        "zero_point": torch.tensor([3], dtype=torch.int32),
    }
    limits = {"averaging_const": 0.1, "quant_min": 0, "quant_max": 255, "ch_axis": 0}
    yield "_fused_moving_avg_obs_fq_helper.out", observed | limits


def _layers() -> Rows:
    source = torch.randn(2, 3, 4)
    heads: Call = {
        "embed_dim": 4,
        "qkv_weight": torch.randn(12, 4),
        "qkv_bias": torch.randn(12),
        "proj_weight": torch.randn(4, 4),
        "proj_bias": torch.randn(4),
    }
    attention = {"query": source, "key": source, "value": source, "num_head": 2}
    yield "_native_multi_head_attention.out", attention | heads
    norms: Call = {
        f"norm_{part}_{n}": torch.randn(4) for n in (1, 2) for part in ("weight", "bias")
    }
    hidden = {"ffn_weight_1": torch.randn(6, 4), "ffn_bias_1": torch.randn(6)}
    hidden |= {"ffn_weight_2": torch.randn(4, 6), "ffn_bias_2": torch.randn(4)}
    options = {"src": source, "num_heads": 2, "use_gelu": True, "norm_first": False, "eps": 1e-5}
    yield "_transformer_encoder_layer_fwd.out", heads | norms | hidden | options
    bags: Call = {
        "grad": torch.randn(2, 3),
        "indices": torch.tensor([0, 2, 4, 2]),
        "offset2bag": torch.tensor([0, 0, 1, 1]),
        "bag_size": torch.tensor([2, 2]),
        "maximum_indices": torch.tensor([], dtype=torch.int64),
        "per_sample_weights": None,
    }
    options = {"num_weights": 5, "scale_grad_by_freq": False, "mode": 0}
    yield "_embedding_bag_dense_backward.out", bags | options


def _sobol() -> Rows:
    state = torch.ones(2, 30, dtype=torch.int64)
    yield "_sobol_engine_initialize_state_", {"self": state * 0, "dimension": 2}
    triangle = torch.randint(2, (2, 30, 30)).tril()
    directions = torch.randint(1 << 30, (2, 30))
    yield "_sobol_engine_scramble_", {"self": directions, "ltm": triangle, "dimension": 2}
    quasi = {"self": torch.zeros(2, dtype=torch.int64), "sobolstate": state, "dimension": 2}
    yield "_sobol_engine_ff_", quasi | {"n": 3, "num_generated": 0}


def _without_cpu_kernel() -> Rows:
    left, right = torch.randn(8, 16).bfloat16(), torch.randn(16, 8).bfloat16()
    wide = {"out_dtype": torch.float32}
    product = {"self": left, "mat2": right, "out": BlankValue("float32", (8, 8))} | wide
    yield "mm.dtype_out", product
    added = {"self": torch.randn(8, 8), "mat1": left, "mat2": right, "out": product["out"]}
    yield "addmm.dtype_out", added | wide
    batch = {"self": left[None], "mat2": right[None], "out": BlankValue("float32", (1, 8, 8))}
    yield "bmm.dtype_out", batch | wide
    batches = {"self": torch.randn(1, 8, 8), "batch1": left[None], "batch2": right[None]}
    yield "baddbmm.dtype_out", batches | {"out": batch["out"]} | wide
    image = torch.randn(2, 3, 6, 6)
    bias = torch.randn(4)
    general = {"input": image, "weight": torch.randn(4, 3, 2, 2), "bias": bias, "groups": 1}
    geometry = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "output_padding": [0, 0]}
    output = {"transposed": False, "out": BlankValue("float32", (2, 4, 5, 5))}
    yield "convolution_overrideable.out", general | geometry | output
    gradients = {"grad_output": torch.randn(2, 4, 5, 5), "output_mask": [True, True, True]}
    shapes = {"out0": (2, 3, 6, 6), "out1": (4, 3, 2, 2), "out2": (4,)}
    blanks = {name: BlankValue("float32", shape) for name, shape in shapes.items()}
    backward = general | geometry | gradients | {"transposed": False} | blanks
    yield "convolution_backward_overrideable.out", backward
    depthwise: Call = {
        "self": image,
        "weight": torch.randn(3, 1, 2, 2),
        "bias": torch.randn(3),
        "kernel_size": [2, 2],
        "stride": [1, 1],
        "padding": [0, 0],
        "dilation": [1, 1],
        "out": BlankValue("float32", (2, 3, 5, 5)),
    }
    yield "_conv_depthwise2d.out", depthwise
    cudnn = {"self": image, "weight": torch.randn(4, 3, 2, 2), "groups": 1, "allow_tf32": False}
    geometry = {"padding": [0, 0], "stride": [1, 1], "dilation": [1, 1]}
    output = {"deterministic": True, "out": BlankValue("float32", (2, 4, 5, 5))}
    yield "cudnn_convolution.out", cudnn | geometry | {"benchmark": False} | output
    normalized = {"input": image, "weight": torch.rand(3), "bias": torch.rand(3), "eps": 1e-5}
    statistics = {"mean": torch.randn(3), "invstd": torch.rand(3) + 0.5}
    yield (
        "batch_norm_elemt.out",
        normalized | statistics | {"out": BlankValue("float32", (2, 3, 6, 6))},
    )
    values, mask = BlankValue("float32", (9,)), BlankValue("uint8", (9,))
    yield "_fused_dropout.out", {"self": torch.rand(9), "p": 0.5, "out0": values, "out1": mask}
    scaled = {"self": torch.rand(9), "mask": torch.ones(9).byte(), "scale": 2.0, "out": values}
    yield "_masked_scale.out", scaled
    blank = BlankValue("float32", (3,))
    yield "batch_norm_stats.out", {"input": image, "eps": 1e-5, "out0": blank, "out1": blank}


GROUPS = (
    _factories,
    _random,
    _pointwise,
    _matrices,
    _convolutions,
    _normalizations,
    _others,
    _uninitialized,
    _mixed_precision,
    _fake_quantization,
    _layers,
    _sobol,
    _without_cpu_kernel,
)
