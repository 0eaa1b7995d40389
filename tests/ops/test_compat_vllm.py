"""``infini.ops.compat.vllm``: vLLM's names, order of arguments, and its IR.

The expected results are made of torch's own operators in float64. vLLM's registration is rebuilt
here from its ``vllm/ir/op.py`` (vLLM 0.25): what it checks, and how it dispatches.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from flash_examples import ends, exact_varlen
from moe_examples import exact_alignment
from quantization_examples import (
    FLOAT8,
    exact_groups,
    exact_product,
    exact_tokens_azp,
    exact_tokens_float8,
    to_float8,
    to_int8,
)
from routing_examples import exact_choice, token_expert_indices
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.library import infer_schema

import infini.ops
import torch
from infini.ops.compat import vllm

pytestmark = pytest.mark.cpu_kernels
TYPES = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def assert_near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = TOLERANCES[actual.dtype]
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def normalized(x: torch.Tensor, weight: torch.Tensor | None, epsilon: float) -> torch.Tensor:
    x = x.double()
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
    return x if weight is None else x * weight.double()


def rotated(
    x: torch.Tensor, angles: torch.Tensor, size: int, is_neox: bool, *, inverse: bool
) -> torch.Tensor:
    """Rotates [tokens, heads * size] by the rows of ``angles``: cosines, then sines."""
    x = x.double().view(x.shape[0], -1, size).clone()
    cos, sin = (each.unsqueeze(1) for each in angles.double().chunk(2, -1))
    sin = -sin if inverse else sin
    part = x[..., : 2 * cos.shape[-1]]
    first, second = part.chunk(2, -1) if is_neox else (part[..., ::2], part[..., 1::2])
    pair = (first * cos - second * sin, second * cos + first * sin)
    part.copy_(torch.cat(pair, -1) if is_neox else torch.stack(pair, -1).flatten(-2))
    return x.flatten(1)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
class TestFunctions:
    @pytest.mark.operators("rms_norm")
    @pytest.mark.parametrize("has_weight", [True, False])
    def test_rms_norm(self, dtype: torch.dtype, has_weight: bool) -> None:
        x, out = torch.randn(5, 32).to(dtype), torch.full((5, 32), 7.0, dtype=dtype)
        weight = torch.rand(32).to(dtype) if has_weight else None
        assert vllm.rms_norm(out, x, weight, 1e-5) is None
        assert_near(out, normalized(x, weight, 1e-5))

    @pytest.mark.operators("fused_add_rms_norm")
    @pytest.mark.parametrize("has_weight", [True, False])
    def test_fused_add_rms_norm(self, dtype: torch.dtype, has_weight: bool) -> None:
        x, residual = torch.randn(5, 32).to(dtype), torch.randn(5, 32).to(dtype)
        weight = torch.rand(32).to(dtype) if has_weight else None
        total = x.double() + residual.double()
        vllm.fused_add_rms_norm(x, residual, weight, 1e-5)
        assert_near(residual, total)
        assert_near(x, normalized(total, weight, 1e-5))

    @pytest.mark.parametrize(
        ("name", "activation"),
        [
            pytest.param(name, activation, marks=pytest.mark.operators(name), id=name)
            for name, activation in (
                ("silu_and_mul", torch.nn.functional.silu),
                ("gelu_and_mul", torch.nn.functional.gelu),
                (
                    "gelu_tanh_and_mul",
                    lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
                ),
            )
        ],
    )
    def test_activations(
        self, dtype: torch.dtype, name: str, activation: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        x, out = torch.randn(5, 64).to(dtype), torch.full((5, 32), 7.0, dtype=dtype)
        getattr(vllm, name)(out, x)
        first, second = x.double().chunk(2, -1)
        assert_near(out, activation(first) * second)

    @pytest.mark.operators("rotary_embedding")
    @pytest.mark.parametrize("is_neox", [True, False])
    @pytest.mark.parametrize("inverse", [True, False])
    @pytest.mark.parametrize("has_key", [True, False])
    def test_rotary_embedding(
        self, dtype: torch.dtype, is_neox: bool, inverse: bool, has_key: bool
    ) -> None:
        positions = torch.tensor([3, 0, 9, 3, 7])
        query = torch.randn(5, 4 * 16).to(dtype)
        key = torch.randn(5, 2 * 16).to(dtype) if has_key else None
        cache = torch.randn(10, 8).to(dtype)  # of 8 of the 16 elements of a head
        written = [each for each in (query, key) if each is not None]
        expected = [
            rotated(each, cache[positions], 16, is_neox, inverse=inverse) for each in written
        ]
        vllm.rotary_embedding(positions, query, key, 16, cache, is_neox, inverse=inverse)
        for each, result in zip(written, expected, strict=True):
            assert_near(each, result)

    @pytest.mark.operators("flash_attn_varlen_func")
    @pytest.mark.parametrize("has_out", [True, False])
    def test_flash_attn_varlen_func(self, dtype: torch.dtype, has_out: bool) -> None:
        queries, keys = (2, 1, 4), (9, 5, 4)
        q, caches = torch.randn(7, 4, 16).to(dtype), torch.randn(2, 6, 4, 2, 16).to(dtype)
        table = torch.tensor([[5, 0, 3], [2, 4, -1], [1, -1, -1]], dtype=torch.int32)
        options: dict[str, Any] = {"causal": True, "softcap": 2.0, "softmax_scale": 0.3}
        exact, sums = exact_varlen(
            q,
            caches[0],
            caches[1],
            queries,
            keys,
            block_table=table,
            window=(3, 0),
            **options,
        )
        used = torch.tensor(keys, dtype=torch.int32)
        given = {"out": torch.full_like(q, 7)} if has_out else {}
        lengths = {"seqused_k": used, "max_seqlen_k": 9, "fa_version": 2, "num_splits": 3}
        out, lse = vllm.flash_attn_varlen_func(
            *(q, *caches, 4, ends(queries)),
            **lengths,
            **given,
            **options,
            block_table=table,
            window_size=[3, 0],
            return_softmax_lse=True,
        )
        assert_near(out, exact)
        torch.testing.assert_close(lse.double(), sums, rtol=1e-5, atol=1e-5)
        if has_out:
            assert out is given["out"]

    @pytest.mark.operators("reshape_and_cache_flash")
    @pytest.mark.parametrize("kind", ["auto", "own"])
    def test_reshape_and_cache_flash(self, dtype: torch.dtype, kind: str) -> None:
        key, value = torch.randn(2, 3, 2, 8).to(dtype)
        caches = torch.zeros(2, 4, 5, 2, 8, dtype=dtype)  # 4 blocks of 5 slots
        expected = caches.clone()
        expected[0].view(20, 2, 8)[[7, 0]] = key[[0, 2]]
        expected[1].view(20, 2, 8)[[7, 0]] = value[[0, 2]]
        slots, scale = torch.tensor([7, -1, 0]), torch.ones(())
        name = "auto" if kind == "auto" else str(dtype).removeprefix("torch.")
        vllm.reshape_and_cache_flash(key, value, *caches, slots, name, scale, scale)
        assert torch.equal(caches, expected)

    @pytest.mark.operators("reshape_and_cache")
    def test_reshape_and_cache(self, dtype: torch.dtype) -> None:
        key, value = torch.randn(2, 3, 2, 16).to(dtype)
        packed = 16 // dtype.itemsize
        key_cache = torch.zeros(4, 2, 16 // packed, 5, packed, dtype=dtype)
        value_cache = torch.zeros(4, 2, 16, 5, dtype=dtype)
        slots, scale = torch.tensor([7, -1, 0]), torch.ones(())
        vllm.reshape_and_cache(key, value, key_cache, value_cache, slots, "auto", scale, scale)
        for token, (block, offset) in ((0, (1, 2)), (2, (0, 0))):
            assert torch.equal(key_cache[block, :, :, offset].flatten(1), key[token])
            assert torch.equal(value_cache[block, ..., offset], value[token])
        assert key_cache.count_nonzero() == value_cache.count_nonzero() == 2 * key[0].numel()

    @pytest.mark.parametrize(
        ("name", "function"),
        [
            pytest.param(name, function, marks=pytest.mark.operators(name), id=name)
            for name, function in (
                ("topk_softmax", partial(torch.softmax, dim=-1)),
                ("topk_sigmoid", torch.sigmoid),
            )
        ],
    )
    @pytest.mark.parametrize("has_bias", [True, False])
    def test_topk(
        self,
        dtype: torch.dtype,
        name: str,
        function: Callable[[torch.Tensor], torch.Tensor],
        has_bias: bool,
    ) -> None:
        scores = torch.randn(5, 16).to(dtype)
        bias = torch.rand(16) if has_bias else None
        weights = torch.full((5, 3), 7.0)
        experts, numbers = torch.full((2, 5, 3), 7)
        getattr(vllm, name)(weights, experts, numbers, scores, True, bias)
        exact = function(scores.double())
        keys = scores.double() if bias is None else exact + bias
        expected, chosen = exact_choice(exact, keys, 3, renormalize=True)
        assert_near(weights, expected)
        assert torch.equal(experts, chosen)
        assert torch.equal(numbers, token_expert_indices(5, 3))

    @pytest.mark.operators("grouped_topk")
    def test_grouped_topk(self, dtype: torch.dtype) -> None:
        scores, bias = torch.rand(5, 8).to(dtype), torch.tensor([0.0] * 4 + [10.0] * 4)
        weights, experts = vllm.grouped_topk(scores, 2, 1, 3, True, 2.5, bias, 1)
        exact = scores.double().sigmoid()
        expected, chosen = exact_choice(exact, exact + bias, 3, renormalize=True)
        assert_near(weights, 2.5 * expected)
        assert torch.equal(experts.long(), chosen)

    @pytest.mark.operators("moe_sum")
    def test_moe_sum(self, dtype: torch.dtype) -> None:
        x, out = torch.randn(5, 3, 33).to(dtype), torch.full((5, 33), 7.0, dtype=dtype)
        vllm.moe_sum(x, out)
        assert_near(out, x.double().sum(1))

    @pytest.mark.operators(
        "static_scaled_fp8_quant", "dynamic_scaled_fp8_quant", "dynamic_per_token_scaled_fp8_quant"
    )
    def test_fp8_quant(self, dtype: torch.dtype) -> None:
        x, scale = torch.randn(5, 32).to(dtype), torch.full((1,), 0.02)
        result, scales = torch.empty(5, 32, dtype=FLOAT8), torch.empty(5, 1)
        vllm.static_scaled_fp8_quant(result, x, scale)
        assert_same(result, to_float8(x.float() * (1 / scale)))
        with pytest.raises(ValueError, match=r"group_shape: got \(1, 128\), expected None"):
            vllm.static_scaled_fp8_quant(result, x, scale, (1, 128))
        vllm.dynamic_scaled_fp8_quant(result, x, scale)
        assert_same(scale, x.float().abs().max().view(1) / 448)
        assert_same(result, to_float8(x.float() * (1 / scale)))
        vllm.dynamic_per_token_scaled_fp8_quant(result, x, scales, torch.ones(1))
        for got, expected in zip((result, scales), exact_tokens_float8(x, 1.0), strict=True):
            assert_same(got, expected)

    @pytest.mark.operators("static_scaled_int8_quant", "dynamic_scaled_int8_quant")
    def test_int8_quant(self, dtype: torch.dtype) -> None:
        x, scale = torch.randn(5, 32).to(dtype), torch.full((1,), 0.02)
        result, scales = torch.empty(5, 32, dtype=torch.int8), torch.empty(5, 1)
        azp = torch.empty(5, 1, dtype=torch.int32)
        vllm.static_scaled_int8_quant(result, x, scale, torch.tensor([7], dtype=torch.int32))
        assert_same(result, to_int8(x.float() / scale, 7))
        vllm.dynamic_scaled_int8_quant(result, x, scales, azp)
        for got, expected in zip((result, scales, azp), exact_tokens_azp(x), strict=True):
            assert_same(got, expected)

    @pytest.mark.operators("scaled_mm")
    @pytest.mark.parametrize("has_bias", [True, False])
    def test_cutlass_scaled_mm(self, dtype: torch.dtype, has_bias: bool) -> None:
        a, b = torch.randn(5, 32).to(FLOAT8), torch.randn(16, 32).to(FLOAT8).t()
        scales = torch.rand(5, 1), torch.rand(1, 16)
        bias = torch.randn(16).to(dtype) if has_bias else None
        out = torch.full((5, 16), 7.0, dtype=dtype)
        vllm.cutlass_scaled_mm(out, a, b, *scales, bias)
        assert_near(out, exact_product(a, b, *scales, bias))

    @pytest.mark.operators("per_token_group_fp8_quant", "per_token_group_quant_int8")
    def test_per_token_group_quant(self, dtype: torch.dtype) -> None:
        x, scales = torch.randn(5, 32).to(dtype), torch.empty(5, 4)
        result = torch.empty(5, 32, dtype=FLOAT8)
        vllm.per_token_group_fp8_quant(x, result, scales, 8, 1e-10, -448.0, 448.0, True)
        exact = exact_groups(x, 8, 1e-10, -448.0, 448.0, is_power=True)
        for got, expected in zip((result, scales), exact, strict=True):
            assert_same(got, expected)
        result = torch.empty(5, 32, dtype=torch.int8)
        vllm.per_token_group_quant_int8(x, result, scales, 8, 1e-10, -128.0, 127.0)
        exact = exact_groups(x, 8, 1e-10, -128.0, 127.0)
        for got, expected in zip((result, scales), exact, strict=True):
            assert_same(got, expected)


@pytest.mark.operators("moe_align_block_size")
@pytest.mark.parametrize("has_map", [True, False])
def test_moe_align_block_size(has_map: bool) -> None:
    ids = torch.tensor([[0, 2], [3, 2], [2, 1]], dtype=torch.int32)
    expert_map = torch.tensor([-1, 0, 1, -1], dtype=torch.int32) if has_map else None
    outs = [torch.full((size,), 7, dtype=torch.int32) for size in (18, 6, 1)]
    vllm.moe_align_block_size(ids, 4, 4, *outs, expert_map=expert_map)
    local = ids if expert_map is None else expert_map[ids.long()]
    for out, expected in zip(outs, exact_alignment(local, 4, 4, 18), strict=True):
        torch.testing.assert_close(out[: len(expected)].long(), expected, rtol=0, atol=0)


@pytest.mark.operators("flash_attn_varlen_func")
@pytest.mark.parametrize(
    "wrong", [{"dropout_p": 0.1}, {"q_v": torch.ones(1)}, {"s_aux": torch.zeros(2)}], ids=str
)
def test_what_attention_lacks_is_refused(wrong: dict[str, Any]) -> None:
    q, lengths = torch.ones(2, 1, 4), torch.tensor([0, 2])
    (name,) = wrong
    with pytest.raises(ValueError, match=f"flash_attn_varlen_func: {name}: got a value, expected"):
        vllm.flash_attn_varlen_func(q, q, q, 2, lengths, 2, lengths, **wrong)
    vllm.flash_attn_varlen_func(q, q, q, 2, lengths, 2, lengths, s_aux=None)


@pytest.mark.parametrize("name", ["reshape_and_cache", "reshape_and_cache_flash"])
@pytest.mark.parametrize("kind", ["fp8", "fp8_e4m3", "float16"])
def test_a_cache_of_another_type_is_refused(name: str, kind: str) -> None:
    key, cache, scale = torch.rand(1, 2, 8), torch.zeros(2, 2, 2, 8), torch.ones(())
    with pytest.raises(ValueError, match=f"{name}: kv_cache_dtype: got '{kind}', expected 'auto'"):
        getattr(vllm, name)(key, key, cache, cache, torch.tensor([0]), kind, scale, scale)
    assert not cache.any()


@pytest.mark.operators("rms_norm")
def test_a_function_stays_in_a_graph() -> None:
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        vllm.rms_norm(out, x, weight, 1e-5)
        return out

    x, weight = torch.rand(3, 4), torch.rand(4)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, weight), function(x, weight))


# vLLM's side.


@dataclass
class IrOperator:
    """An operator of the IR: its own implementation, and those of providers by priority."""

    native: Callable[..., Any]
    allows_inplace: bool = False
    priority: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.signature = inspect.signature(self.native)
        self.schema = infer_schema(self.native, mutates_args=[])
        self.impls = {"native": SimpleNamespace(impl_fn=self.native, supports_args=None)}

    def register_impl(
        self,
        provider: str,
        *,
        supported: bool = True,
        supports_args: Callable[..., bool] | None = None,
        inplace: bool = False,
    ) -> Callable[[Callable[..., Any]], None]:
        def register(function: Callable[..., Any]) -> None:
            assert provider not in self.impls
            assert supported
            assert infer_schema(function, mutates_args=[]) == self.schema
            if supports_args is not None:
                parameters = inspect.signature(supports_args).parameters.values()
                assert len(parameters) == len(self.signature.parameters)
                assert all(each.kind is not each.KEYWORD_ONLY for each in parameters)
            assert self.allows_inplace or not inplace
            self.impls[provider] = SimpleNamespace(impl_fn=function, supports_args=supports_args)

        return register

    def provider_of(self, *arguments: Any) -> str:
        bound = self.signature.bind(*arguments)
        bound.apply_defaults()
        for provider in self.priority:
            supports = self.impls[provider].supports_args
            if supports is None or supports(*bound.args):
                return provider
        raise AssertionError("the last provider takes all calls")

    def __call__(self, *arguments: Any) -> Any:
        return self.impls[self.provider_of(*arguments)].impl_fn(*arguments)


def _rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, epsilon: float, variance_size: int | None = None
) -> torch.Tensor:
    square = (x if variance_size is None else x[..., :variance_size]).double().pow(2)
    result = x.double() * torch.rsqrt(square.mean(-1, keepdim=True) + epsilon)
    return (result if weight is None else result * weight).to(x.dtype)


def _fused_add_rms_norm(
    x: torch.Tensor,
    x_residual: torch.Tensor,
    weight: torch.Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    total = x.double() + x_residual.double()
    return _rms_norm(total, weight, epsilon, variance_size).to(x.dtype), total.to(x.dtype)


def _silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    first, second = x.double().chunk(2, -1)
    return (torch.nn.functional.silu(first) * second).to(x.dtype)


@pytest.fixture
def ir() -> SimpleNamespace:
    """The operators of vLLM's IR, with this library before vLLM's own implementations."""
    ops = SimpleNamespace(
        rms_norm=IrOperator(_rms_norm),
        fused_add_rms_norm=IrOperator(_fused_add_rms_norm, allows_inplace=True),
        silu_and_mul=IrOperator(_silu_and_mul),
    )
    for name in vllm.register_provider(ops):
        getattr(ops, name).priority = ["infini_ops", "native"]
    return ops


class TestProvider:
    @pytest.mark.operators("rms_norm", "fused_add_rms_norm")
    def test_it_registers_what_both_have(self) -> None:
        ops = SimpleNamespace(rms_norm=IrOperator(_rms_norm), other=IrOperator(_silu_and_mul))
        assert vllm.register_provider(ops, "mine") == ["rms_norm"]
        assert set(ops.rms_norm.impls) == {"native", "mine"}
        assert set(ops.other.impls) == {"native"}

    @pytest.mark.operators("rms_norm")
    @pytest.mark.parametrize("dtype", TYPES, ids=str)
    def test_rms_norm(self, ir: SimpleNamespace, dtype: torch.dtype) -> None:
        x, weight = torch.randn(5, 32).to(dtype), torch.rand(32).to(dtype)
        result = ir.rms_norm(x, weight, 1e-5)
        assert infini.ops.last_call().operator == "rms_norm"
        assert_near(result, _rms_norm(x.double(), weight.double(), 1e-5))

    @pytest.mark.operators("fused_add_rms_norm")
    @pytest.mark.parametrize("dtype", TYPES, ids=str)
    def test_fused_add_rms_norm_reuses_its_inputs(
        self, ir: SimpleNamespace, dtype: torch.dtype
    ) -> None:
        x, residual, weight = (torch.randn(*shape).to(dtype) for shape in ((5, 32), (5, 32), (32,)))
        expected = _fused_add_rms_norm(x.double(), residual.double(), weight.double(), 1e-5)
        results = ir.fused_add_rms_norm(x, residual, weight, 1e-5)
        assert results[0] is x
        assert results[1] is residual
        for result, value in zip(results, expected, strict=True):
            assert_near(result, value)

    @pytest.mark.operators("silu_and_mul")
    @pytest.mark.parametrize("dtype", TYPES, ids=str)
    def test_silu_and_mul(self, ir: SimpleNamespace, dtype: torch.dtype) -> None:
        x = torch.randn(5, 64).to(dtype)
        result = ir.silu_and_mul(x)
        assert infini.ops.last_call().operator == "silu_and_mul"
        assert_near(result, _silu_and_mul(x.double()))

    @pytest.mark.operators("rms_norm")
    @pytest.mark.parametrize(
        ("arguments", "provider"),
        [
            ((torch.rand(5, 32), torch.rand(32), 1e-5), "infini_ops"),
            ((torch.rand(0, 32), torch.rand(32), 1e-5), "infini_ops"),
            ((torch.rand(32, 5).t(), torch.rand(32), 1e-5), "infini_ops"),
            ((torch.rand(5, 32).half(), torch.rand(32), 1e-5), "infini_ops"),
            ((torch.rand(5, 32), torch.rand(32).half(), 1e-5), "native"),
            ((torch.rand(5, 32), torch.rand(32), 1e-5, 16), "native"),
            ((torch.rand(5, 32), None, 1e-5), "native"),
            ((torch.rand(5, 32).to(torch.complex64), torch.rand(32), 1e-5), "native"),
        ],
        ids=[
            *("plain", "empty", "strided", "wide-weight", "narrow-weight", "variance-size"),
            *("no-weight", "complex"),
        ],
    )
    def test_the_predicate_is_what_a_slot_takes(
        self, ir: SimpleNamespace, arguments: tuple[Any, ...], provider: str
    ) -> None:
        assert ir.rms_norm.provider_of(*arguments) == provider

    @pytest.mark.operators("rms_norm")
    def test_fake_tensors_get_the_provider_of_real_ones(self, ir: SimpleNamespace) -> None:
        with FakeTensorMode(shape_env=ShapeEnv()) as mode:
            x = mode.from_tensor(torch.rand(5, 32), static_shapes=False)
            weight = mode.from_tensor(torch.rand(32))
            assert ir.rms_norm.provider_of(x, weight, 1e-5) == "infini_ops"
            assert ir.rms_norm.provider_of(x, weight.to(torch.complex64), 1e-5) == "native"
