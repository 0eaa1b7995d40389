"""The operators with the signatures of ``vllm._custom_ops``, and as a provider of vLLM's IR.

vLLM passes what is written first, and no default for ``epsilon``. The functions call the operators
of ``infini.ops``, and stay in the graphs of ``torch.compile``. This module does not import vLLM.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import optimization_hint

import infini.ops
import torch
from infini.ops.torch_library import OPERATORS

__all__ = [
    "cutlass_scaled_mm",
    "dynamic_per_token_scaled_fp8_quant",
    "dynamic_scaled_fp8_quant",
    "dynamic_scaled_int8_quant",
    "flash_attn_varlen_func",
    "fused_add_rms_norm",
    "gelu_and_mul",
    "gelu_tanh_and_mul",
    "grouped_topk",
    "moe_align_block_size",
    "moe_sum",
    "per_token_group_fp8_quant",
    "per_token_group_quant_int8",
    "register_provider",
    "reshape_and_cache",
    "reshape_and_cache_flash",
    "rms_norm",
    "rotary_embedding",
    "silu_and_mul",
    "static_scaled_fp8_quant",
    "static_scaled_int8_quant",
    "topk_sigmoid",
    "topk_softmax",
]


def rms_norm(
    out: torch.Tensor, input: torch.Tensor, weight: torch.Tensor | None, epsilon: float
) -> None:
    """Write ``input / sqrt(mean(input²) + epsilon) * weight`` into ``out``.

    ``input`` and ``out`` are [..., hidden], ``weight`` is [hidden], or ``None`` for ones.
    """
    infini.ops.rms_norm(input, _weight(input, weight), epsilon, out)


def fused_add_rms_norm(
    input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, epsilon: float
) -> None:
    """Add ``input`` to ``residual`` in place. ``input`` becomes the normalized sum."""
    infini.ops.fused_add_rms_norm(input, residual, _weight(input, weight), epsilon)


def _weight(input: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    return input.new_ones(input.shape[-1]) if weight is None else weight


def silu_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """Write ``silu(input[..., :d]) * input[..., d:]`` into ``out``, which is [..., d]."""
    infini.ops.silu_and_mul(input, out)


def gelu_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """Write ``gelu(input[..., :d]) * input[..., d:]`` into ``out``, which is [..., d]."""
    infini.ops.gelu_and_mul(input, out)


def gelu_tanh_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """Like ``gelu_and_mul``, with the approximation by tanh."""
    infini.ops.gelu_tanh_and_mul(input, out)


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
    rope_dim_offset: int = 0,
    inverse: bool = False,
) -> None:
    """Rotate ``query`` and ``key`` in place by the angles of ``positions``."""
    infini.ops.rotary_embedding(
        positions,
        query,
        key,
        head_size,
        cos_sin_cache,
        is_neox,
        rope_dim_offset=rope_dim_offset,
        inverse=inverse,
    )


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,  # noqa: ARG001
    v_scale: torch.Tensor,  # noqa: ARG001
) -> None:
    """Write each token's key and value into its slot of the paged caches.

    The scales belong to quantized caches, and are not read. Raises ``ValueError`` if
    ``kv_cache_dtype`` is neither "auto" nor the type of the caches.
    """
    _check_cache_type("reshape_and_cache", kv_cache_dtype, key_cache)
    infini.ops.reshape_and_cache(key, value, slot_mapping, key_cache, value_cache)


def reshape_and_cache_flash(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,  # noqa: ARG001
    v_scale: torch.Tensor,  # noqa: ARG001
) -> None:
    """``reshape_and_cache`` for caches of [blocks, block size, heads, head size]."""
    _check_cache_type("reshape_and_cache_flash", kv_cache_dtype, key_cache)
    infini.ops.reshape_and_cache_flash(key, value, slot_mapping, key_cache, value_cache)


def static_scaled_fp8_quant(
    result: torch.Tensor,
    input: torch.Tensor,
    scale: torch.Tensor,
    group_shape: tuple[int, int] | None = None,
) -> None:
    """Write ``input / scale`` into ``result``, which is float8_e4m3fn.

    Raises ``ValueError`` for a ``group_shape``, unless it is that of the whole tensor.
    """
    if group_shape not in (None, (-1, -1)):
        raise ValueError(
            f"static_scaled_fp8_quant: group_shape: got {group_shape}, expected None or (-1, -1), "
            "a scale of the whole tensor. Quantize with per_token_group_fp8_quant"
        )
    infini.ops.static_scaled_fp8_quant(input, scale, result)


def dynamic_scaled_fp8_quant(
    result: torch.Tensor, input: torch.Tensor, scale: torch.Tensor
) -> None:
    """Write the scale of the largest magnitude into ``scale``, and ``input / scale``."""
    infini.ops.dynamic_scaled_fp8_quant(input, result, scale)


def dynamic_per_token_scaled_fp8_quant(
    result: torch.Tensor,
    input: torch.Tensor,
    scale: torch.Tensor,
    scale_ub: torch.Tensor | None,
) -> None:
    """Like ``dynamic_scaled_fp8_quant``, with a scale for each row: [tokens, 1]."""
    infini.ops.dynamic_per_token_scaled_fp8_quant(input, scale_ub, result=result, scale=scale)


def static_scaled_int8_quant(
    result: torch.Tensor, input: torch.Tensor, scale: torch.Tensor, azp: torch.Tensor | None
) -> None:
    """Write ``input / scale + azp`` into ``result``, which is int8."""
    infini.ops.static_scaled_int8_quant(input, scale, azp, result=result)


def dynamic_scaled_int8_quant(
    result: torch.Tensor, input: torch.Tensor, scale: torch.Tensor, azp: torch.Tensor | None
) -> None:
    """Like ``static_scaled_int8_quant``, with a scale for each row that is written: [tokens, 1]."""
    infini.ops.dynamic_scaled_int8_quant(input, result, scale, azp=azp)


def per_token_group_fp8_quant(
    input: torch.Tensor,
    output_q: torch.Tensor,
    output_s: torch.Tensor,
    group_size: int,
    eps: float,
    fp8_min: float,
    fp8_max: float,
    scale_ue8m0: bool,
    dummy_is_scale_transposed: bool = False,  # noqa: ARG001 - so in vLLM
    dummy_is_tma_aligned: bool = False,  # noqa: ARG001
) -> None:
    """Write ``input / output_s`` into ``output_q``, with a scale for each group of a row."""
    infini.ops.per_token_group_fp8_quant(
        *(input, group_size, eps, fp8_min, fp8_max, scale_ue8m0),
        output_q=output_q,
        output_s=output_s,
    )


def per_token_group_quant_int8(
    input: torch.Tensor,
    output_q: torch.Tensor,
    output_s: torch.Tensor,
    group_size: int,
    eps: float,
    int8_min: float,
    int8_max: float,
) -> None:
    """Like ``per_token_group_fp8_quant`` in int8. Results are rounded, where vLLM truncates."""
    infini.ops.per_token_group_quant_int8(
        input, group_size, eps, int8_min, int8_max, output_q=output_q, output_s=output_s
    )


def cutlass_scaled_mm(
    out: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_scales: torch.Tensor,
    b_scales: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> None:
    """Write ``a_scales * (b_scales * (a @ b)) + bias`` into ``out``, of int8 or float8_e4m3fn."""
    infini.ops.scaled_mm(a, b, a_scales, b_scales, bias, out=out)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    max_seqlen_q: int,
    cu_seqlens_q: torch.Tensor,
    max_seqlen_k: int,
    cu_seqlens_k: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    q_v: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] | None = None,
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,  # noqa: ARG001 - it always is
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
    return_softmax_lse: bool = False,
    out: torch.Tensor | None = None,
    **others: Any,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of sequences of different lengths, with the signature of vLLM's flash-attention.

    Returns ``out``, with ``return_softmax_lse`` also the logarithms [heads, rows], which are
    -infinity where a query sees no key. Raises ``ValueError`` for dropout, attention
    probabilities, and any of ``q_v`` and ``others``, such as scales of quantized caches and sinks,
    that is given. What chooses an implementation of vLLM has no effect.
    """
    unsupported = {
        "q_v": q_v,
        "dropout_p": dropout_p,
        "return_attn_probs": return_attn_probs,
        **{name: value for name, value in others.items() if name not in _CHOICES},
    }
    for name, value in unsupported.items():
        if isinstance(value, torch.Tensor) or value:
            raise ValueError(
                f"flash_attn_varlen_func: {name}: got a value, expected the default: it is not "
                "supported. Leave it out"
            )
    left, right = window_size or (-1, -1)
    if out is None:
        out = q.new_empty((*q.shape[:2], v.shape[-1]))
    lse = None
    if return_softmax_lse:
        lse = torch.empty((q.shape[1], q.shape[0]), dtype=torch.float32, device=q.device)
    infini.ops.flash_attn_varlen_func(
        *(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_k, block_table),
        *(softmax_scale, causal, left, right, softcap, alibi_slopes),
        out=out,
        softmax_lse=lse,
    )
    return out if lse is None else (out, lse)


def topk_softmax(
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    token_expert_indices: torch.Tensor,
    gating_output: torch.Tensor,
    renormalize: bool = False,
    e_score_correction_bias: torch.Tensor | None = None,
) -> None:
    """Write the experts of each row of ``gating_output``, and their softmax over all experts."""
    infini.ops.topk_softmax(
        *(gating_output, renormalize, e_score_correction_bias),
        *(topk_weights, topk_ids, token_expert_indices),
    )


def topk_sigmoid(
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    token_expert_indices: torch.Tensor,
    gating_output: torch.Tensor,
    renormalize: bool = False,
    e_score_correction_bias: torch.Tensor | None = None,
) -> None:
    """Like ``topk_softmax``, with the sigmoid of each score."""
    infini.ops.topk_sigmoid(
        *(gating_output, renormalize, e_score_correction_bias),
        *(topk_weights, topk_ids, token_expert_indices),
    )


def grouped_topk(
    scores: torch.Tensor,
    num_expert_group: int,
    topk_group: int,
    topk: int,
    renormalize: bool,
    routed_scaling_factor: float,
    bias: torch.Tensor,
    scoring_func: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the float32 weights and the int32 experts of each row of ``scores``."""
    weights = scores.new_empty((scores.shape[0], topk), dtype=torch.float32)
    experts = torch.empty_like(weights, dtype=torch.int32)
    infini.ops.grouped_topk(
        *(scores, num_expert_group, topk_group, topk, renormalize, routed_scaling_factor, bias),
        *(scoring_func, weights, experts),
    )
    return weights, experts


def moe_align_block_size(
    topk_ids: torch.Tensor,
    num_experts: int,
    block_size: int,
    sorted_token_ids: torch.Tensor,
    experts_ids: torch.Tensor,
    num_tokens_post_pad: torch.Tensor,
    expert_map: torch.Tensor | None = None,
) -> None:
    """Sort choices by expert into blocks.

    With an ``expert_map`` [num_experts] the blocks are those of the experts that it maps to, of
    which -1 are left out.
    """
    if expert_map is not None:
        topk_ids = expert_map[topk_ids.long()]
    infini.ops.moe_align_block_size(
        topk_ids, num_experts, block_size, sorted_token_ids, experts_ids, num_tokens_post_pad
    )


def moe_sum(input: torch.Tensor, output: torch.Tensor) -> None:
    """Write the sum of ``input`` [tokens, k, hidden] over ``k`` into ``output``."""
    infini.ops.moe_sum(input, output)


# Parameters of vLLM's function that choose among its implementations, whose results are the same.
_CHOICES = ("fa_version", "num_splits", "scheduler_metadata")


def _check_cache_type(name: str, kv_cache_dtype: str, cache: torch.Tensor) -> None:
    own = str(cache.dtype).removeprefix("torch.")
    if kv_cache_dtype not in ("auto", own):
        raise ValueError(
            f"{name}: kv_cache_dtype: got '{kv_cache_dtype}', expected 'auto' or '{own}', the type "
            "of key_cache. Quantized caches are not supported: use a cache of the model's type"
        )


# The IR: functional operators, for each of which providers register implementations. A provider
# can refuse a call by a predicate over its arguments, and vLLM then asks the next one. See
# https://github.com/vllm-project/vllm/issues/32358

# vLLM's names of our parameters, where they differ.
_NAMES = {"x": "input", "x_residual": "residual", "epsilon": "eps"}


def _like_input(input: torch.Tensor) -> torch.Tensor:
    return torch.empty(input.shape, dtype=input.dtype, device=input.device)


def _half_of_input(input: torch.Tensor) -> torch.Tensor:
    shape = (*input.shape[:-1], input.shape[-1] // 2)
    return torch.empty(shape, dtype=input.dtype, device=input.device)


# The operators of the IR that this library has under the same name, and what makes their result;
# None for those that write into their inputs, which are their results.
_RESULTS: dict[str, Callable[[torch.Tensor], torch.Tensor] | None] = {
    "rms_norm": _like_input,
    "fused_add_rms_norm": None,
    "silu_and_mul": _half_of_input,
}


def register_provider(ops: Any, provider: str = "infini_ops") -> list[str]:
    """Register implementations of vLLM's IR operators, and return the names of the operators.

    Args:
        ops: ``vllm.ir.ops``. Operators that it lacks, or that this build lacks, are left out.
        provider: the name for vLLM's priorities: ``--ir-op-priority.rms_norm=infini_ops,native``.
    """
    names = [name for name in _RESULTS if name in OPERATORS and hasattr(ops, name)]
    for name in names:
        ir_operator = getattr(ops, name)
        _Implementation(name, ir_operator.impls["native"].impl_fn).register(ir_operator, provider)
    return names


class _Implementation:
    """One operator of the IR, with the signature that this vLLM declares for it."""

    def __init__(self, name: str, native: Callable[..., Any]) -> None:
        self._operator = OPERATORS[name]
        self._make = _RESULTS[name]
        types = typing.get_type_hints(native)
        signature = inspect.signature(native)
        self._signature = signature.replace(
            parameters=[
                each.replace(annotation=types[each.name]) for each in signature.parameters.values()
            ],
            return_annotation=types["return"],
        )

    def register(self, ir_operator: Any, provider: str) -> None:
        def run(*arguments: Any) -> Any:
            return self._run(*arguments)

        def supports(*arguments: Any) -> bool:
            return self._supports(*arguments)

        # vLLM compares the signatures with that of its own implementation.
        run.__signature__ = supports.__signature__ = self._signature  # type: ignore[attr-defined]
        register = ir_operator.register_impl(
            provider, supports_args=supports, inplace=self._make is None
        )
        register(run)

    def _bind(self, arguments: tuple[Any, ...]) -> tuple[dict[str, Any], bool]:
        """Our arguments, and whether those that we have no parameter for have their defaults."""
        bound = self._signature.bind(*arguments)
        bound.apply_defaults()
        ours, is_plain = {}, True
        for name, value in bound.arguments.items():
            if (our_name := _NAMES.get(name, name)) in self._operator.inputs:
                ours[our_name] = value
            else:
                default = self._signature.parameters[name].default
                is_plain &= type(value) is type(default) and value == default
        return ours, is_plain

    def _run(self, *arguments: Any) -> Any:
        ours, _ = self._bind(arguments)
        function = getattr(infini.ops, self._operator.name)
        if self._make is None:
            function(**ours)
            return tuple(ours[name] for name in self._operator.written)
        out = self._make(ours["input"])
        function(**ours, out=out)
        return out

    def _supports(self, *arguments: Any) -> bool:
        """Whether a slot of this build takes the call. vLLM also asks with fake tensors."""
        ours, is_plain = self._bind(arguments)
        if not is_plain:
            return False
        function = getattr(infini.ops, self._operator.name)
        with unset_fake_temporarily():
            real = {name: _with_memory(value) for name, value in ours.items()}
            if self._make is not None:
                real["out"] = self._make(real["input"])
            return function.slot_for(**real) is not None


def _with_memory(value: Any) -> Any:
    """A tensor of the same layout instead of a fake one, whose symbolic sizes get likely values."""
    if not isinstance(value, FakeTensor):
        return value
    shape = [optimization_hint(size) for size in value.shape]
    strides = [optimization_hint(stride) for stride in value.stride()]
    return torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)
