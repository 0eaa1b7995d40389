"""The CPU's kernels on aarch64: cross-compiled as `pip install` would, and run by qemu.

Expected values are torch's on this machine, in float64 or integers, with the tolerances of the
operator suite.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import torch
from tests.built import built_once, cached_compiler
from tests.cpu.calls import Caller, CallError

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "ops"))
from attention_examples import exact_attention  # noqa: E402
from flash_examples import ends, exact_cached, exact_varlen  # noqa: E402
from moe_examples import blocks_of, exact_grouped_gemm  # noqa: E402
from native_caches import exact_flash_caches, exact_paged_caches  # noqa: E402
from native_examples import OPERATORS, exact_rotation, gelu, gelu_tanh, silu  # noqa: E402
from native_operands import (  # noqa: E402
    FLOATS,
    HOSTILE,
    INTEGERS,
    Example,
    Maker,
    Tolerance,
    as_integer,
    outside,
    tolerance,
    wide,
)
from quantization_examples import (  # noqa: E402
    exact_groups,
    exact_product,
    exact_tokens_azp,
    exact_tokens_float8,
    magnitude,
    to_float8,
    to_int8,
)
from routing_examples import exact_choice, token_expert_indices  # noqa: E402
from sampling_examples import exact_tokens  # noqa: E402

# `assert_close` would import torch.distributed.tensor, as in tests/ops/conftest.py.
torch.testing._comparison._HAS_DTENSOR = False

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"
LIBRARY = "src/libinfini_ops.so"
MISSING = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]

pytestmark = pytest.mark.skipif(
    bool(MISSING),
    reason=f"{' and '.join(MISSING)} not installed (Debian: g++-aarch64-linux-gnu and "
    "qemu-user-static)",
)


def build(folder: Path, environment: dict[str, str]) -> None:
    """The library without torch and without its Python module, and the program that calls it."""
    toolchain = Path(__file__).with_name("aarch64.cmake")
    options = {
        "CMAKE_TOOLCHAIN_FILE": toolchain,
        "Python_EXECUTABLE": sys.executable,
        # CMake searches for headers of the target; the module that needs them is not built.
        "Python_INCLUDE_DIR": sysconfig.get_path("include"),
        "WITH_TORCH": "OFF",
        "AUTO_DETECT_DEVICES": "OFF",
        "AUTO_DETECT_BACKENDS": "OFF",
    }
    definitions = [f"-D{name}={value}" for name, value in options.items()]
    program = Path(__file__).with_name("calls_program.cc")
    paths = [f"-I{ROOT / 'src/include'}", f"-I{folder / 'include'}", f"-L{folder / 'src'}"]
    commands: Sequence[Sequence[str | Path]] = (
        ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *definitions],
        ["cmake", "--build", folder, "--target", "infini_ops", "-j", "2"],
        [COMPILER, "-std=c++17", "-O1", *paths, program, "-linfini_ops", "-o", folder / "calls"],
    )
    for command in commands:
        finished = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    environment = {**os.environ, **cached_compiler(request)}
    return built_once(tmp_path_factory, "aarch64", lambda folder: build(folder, environment))


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Keeps torch from spending more on its threads than on the small tensors here."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def caller(built: Path) -> Iterator[Caller]:
    libraries = "/usr/aarch64-linux-gnu"
    path = f"LD_LIBRARY_PATH={built / 'src'}"
    command = [EMULATOR, "-L", libraries, "-E", path, str(built / "calls")]
    caller = Caller(command, built / "registry" / "native_ops_metadata.json")
    yield caller
    caller.close()


def check(caller: Caller, name: str, example: Example) -> None:
    outs = example.outs
    if not example.keeps_out:
        for out in outs.values():
            out.fill_(77)
    before = outside(*outs.values())
    try:
        caller.call(name, example.arguments, outs)
    except CallError as error:
        if example.is_optional and f"{name}: slot 0 takes " in str(error):
            return
        raise
    allowed = example.tolerance
    note = f"{name}, {example.title}"
    for written, expected in example.results.items():
        torch.testing.assert_close(
            outs[written],
            expected,
            rtol=allowed.rtol,
            atol=allowed.atol,
            equal_nan=True,
            msg=partial("{}, {}: {}".format, note, written),
        )
    assert torch.equal(outside(*outs.values()), before), f"{note}: memory beside an out"


CASES = [
    pytest.param(name, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")
    for name, operator in OPERATORS.items()
    for dtype in operator.dtypes
]


def test_every_operator_is_called(caller: Caller) -> None:
    assert caller.names() == set(OPERATORS)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_examples(caller: Caller, name: str, dtype: torch.dtype) -> None:
    """Those of the operator suite: layouts, special values, alpha and beta, in place, threads."""
    for example in OPERATORS[name].examples(dtype):
        check(caller, name, example)


Make = Callable[..., torch.Tensor]


def operands(
    name: str, make: Make, length: int
) -> tuple[dict[str, Any], torch.Tensor | dict[str, torch.Tensor]]:
    """The arguments of a call with a dimension of this length, and the exact results.

    The results are those of ``out``, or by name; an argument of such a name is written in place.
    Those in float64 or int64 are for outs of the type of the arguments, others for their own.
    """
    x, y = make(length), make(length)
    rows, columns = make(5, length), make(length, 3)
    match name:
        case "add":
            return {"input": x, "other": y, "alpha": 2}, wide(x) + 2 * wide(y)
        case "mul":
            return {"input": x, "other": y}, wide(x) * wide(y)
        case "swiglu":
            return {"input": x, "gate": y}, wide(x) * wide(y) * torch.sigmoid(wide(y))
        case "gelu_and_mul" | "gelu_tanh_and_mul" | "silu_and_mul":
            activation = {"gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}[name[:-8]]
            halves = make(3, 2 * length)
            first, second = wide(halves)[:, :length], wide(halves)[:, length:]
            return {"input": halves}, activation(first) * second
        case "cast":
            return {"input": x}, wide(x)
        case "cat":
            return {"tensors": [x, y], "dim": 0}, torch.cat([wide(x), wide(y)])
        case "rms_norm":
            mean = wide(rows).square().mean(-1, keepdim=True)
            return {"input": rows, "weight": y}, wide(rows) / (mean + 1e-6).sqrt() * wide(y)
        case "add_rms_norm" | "fused_add_rms_norm":
            arguments = {"input": rows, "residual": make(5, length), "weight": y}
            total = wide(rows) + wide(arguments["residual"])
            scale = (total.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
            names = ("input", "residual") if name.startswith("fused") else ("out", "residual_out")
            return arguments, dict(zip(names, (total * scale * wide(y), total), strict=True))
        case "reshape_and_cache" | "reshape_and_cache_flash":
            is_flash = name.endswith("flash")
            if is_flash:
                caches = make(2, 4, 2, length), make(2, 4, 2, length)
            else:
                caches = make(2, 2, length, 4, 1), make(2, 2, length, 4)
            slots = torch.tensor([3, -1, 0, 7, 5])
            key, value = make(5, 2, length), make(5, 2, length)
            exact = exact_flash_caches if is_flash else exact_paged_caches
            arguments = {"key": key, "value": value, "slot_mapping": slots}
            names = ("key_cache", "value_cache")
            results = exact(key, value, slots, caches)
            return arguments | dict(zip(names, caches, strict=True)), dict(
                zip(names, results, strict=True)
            )
        case "rotary_embedding":
            heads = {"query": make(5, 2 * length + 1), "key": make(5, 2 * length + 1)}
            arguments = heads | {
                "positions": torch.arange(5) % 3,
                "head_size": 2 * length + 1,
                "cos_sin_cache": make(3, 2 * length),
                "rope_dim_offset": length % 2,
                "is_neox": length % 3 != 0,
            }
            kept = {name: each for name, each in arguments.items() if name not in heads}
            positions, size, cache = (
                kept.pop(name) for name in ("positions", "head_size", "cos_sin_cache")
            )
            return arguments, {
                name: exact_rotation(positions, each, size, cache, **kept)
                for name, each in heads.items()
            }
        case "topk_softmax" | "topk_sigmoid":
            is_softmax = name == "topk_softmax"
            exact = torch.softmax(wide(rows), -1) if is_softmax else wide(rows).sigmoid()
            weights, experts = exact_choice(exact, wide(rows), min(3, length), renormalize=False)
            return {"gating_output": rows}, {
                "topk_weights": weights.float(),
                "topk_indices": experts.int(),
                "token_expert_indices": token_expert_indices(*experts.shape).int(),
            }
        case "moe_align_block_size":
            ids = torch.arange(3 * length) % 5
            sizes = {"num_experts": 5, "block_size": 4}
            return {"topk_ids": ids, **sizes}, {
                each: values.int() for each, values in blocks_of(ids, 5, 4).items()
            }
        case "grouped_topk":
            arguments = {
                "scores": rows,
                "num_expert_group": 1,
                "topk_group": 1,
                "topk": min(3, length),
                "renormalize": False,
                "routed_scaling_factor": 2.0,
                "bias": torch.zeros(length),
                "scoring_func": 1,
            }
            exact = wide(rows).sigmoid()
            weights, experts = exact_choice(exact, exact, min(3, length), renormalize=False)
            return arguments, {
                "topk_values": 2 * weights.float(),
                "topk_indices": experts.int(),
            }
        case "grouped_gemm":
            ids = torch.tensor([[1], [0], [1], [1], [0]])
            b = make(2, 3, length)
            arguments = {"a": rows, "b": b, **blocks_of(ids, 2, 2), "block_size": 2}
            return arguments, exact_grouped_gemm(rows, b, ids)
        case "moe_sum":
            experts = make(2, 3, length)
            return {"input": experts}, wide(experts).sum(1)
        case "causal_softmax":
            last = rows[: min(1, length)]  # sees all elements
            return {"input": last}, torch.softmax(wide(last), -1)
        case "scaled_softmax":
            return {"input": rows, "scale": -0.5}, torch.softmax(wide(rows) * -0.5, -1)
        case "top_k_top_p_sampling_from_logits":
            logits = make(3, length + 1)
            arguments = {"logits": logits, "top_k": 9, "top_p": 0.9, "seed": length}
            return arguments, exact_tokens(**arguments).to(torch.int32)
        case "gemm":
            arguments = {"a": columns, "b": rows, "trans_a": True, "trans_b": True}
            return arguments, wide(columns).t() @ wide(rows).t()
        case "scaled_dot_product_attention":  # as sizes, and as keys
            key, value = make(length, 5), make(length, 3)
            query = make(4, 5)
            exact = exact_attention(query, key, value, None)
            return {"query": query, "key": key, "value": value}, exact
        case "flash_attn_varlen_func":  # as sizes, and as keys
            operands_of = make(4, 2, 5), make(length, 1, 5), make(length, 1, 3)
            sizes = {"max_seqlen_q": 4, "max_seqlen_k": length}
            indices = {"cu_seqlens_q": ends([4]), "cu_seqlens_k": ends([length])}
            exact, _ = exact_varlen(*operands_of, [4], [length], softcap=2.0)
            q, k, v = operands_of
            return {"q": q, "k": k, "v": v, **indices, **sizes, "softcap": 2.0}, exact
        case "flash_attn_with_kvcache":
            q = make(2, 1, 2, length + 1)
            k, v = make(2, 9, 1, length + 1), make(2, 9, 1, length + 1)
            arguments = {"q": q, "k_cache": k, "v_cache": v}
            exact, _ = exact_cached(q, k, v, [9, 4])
            return arguments | {"cache_seqlens": torch.tensor([9, 4])}, exact
        case "static_scaled_fp8_quant" | "dynamic_scaled_fp8_quant" if length:
            scale = magnitude(x) / 448
            result = to_float8(x.float() * (1 / scale))
            if name.startswith("static"):
                return {"input": x, "scale": scale}, {"result": result}
            return {"input": x}, {"result": result, "scale": scale}
        case "static_scaled_fp8_quant" | "dynamic_scaled_fp8_quant":
            return operands(name, make, 1)
        case "static_scaled_int8_quant":
            scale = torch.full((1,), 0.05)
            return {"input": x, "scale": scale}, {"result": to_int8(x.float() / scale)}
        case "dynamic_per_token_scaled_fp8_quant":
            longer = make(5, length + 1)
            result, scale = exact_tokens_float8(longer)
            return {"input": longer}, {"result": result, "scale": scale}
        case "dynamic_scaled_int8_quant":
            longer = make(5, length + 1)
            result, scale, azp = exact_tokens_azp(longer)
            return {"input": longer}, {"result": result, "scale": scale, "azp": azp}
        case "per_token_group_fp8_quant" | "per_token_group_quant_int8":
            longer, size = make(3, 2 * length + 2), length + 1
            kind, most = ("fp8", 448.0) if "fp8" in name else ("int8", 127.0)
            result, scale = exact_groups(longer, size, 1e-10, -most, most)
            arguments = {"input": longer, "group_size": size, "eps": 1e-10}
            limits = {f"{kind}_min": -most, f"{kind}_max": most}
            return arguments | limits, {"output_q": result, "output_s": scale}
        case "scaled_mm":  # as sums, and as rows of the out
            a, b = (Maker(torch.int8, -128, 128)(3, each) for each in (length, length))
            scale = torch.full((1,), 0.01)
            left, right = (a, b.t()) if length % 2 else (a.t(), b)
            arguments = {"a": left, "b": right, "a_scales": scale, "b_scales": scale}
            return arguments, exact_product(left, right, scale, scale)
        case "linear":
            arguments = {"input": rows, "weight": columns.t(), "bias": make(3)}
            return arguments, wide(rows) @ wide(columns) + wide(arguments["bias"])
        case "matmul":  # as long rows of a product, and not only as long sums
            return {"input": columns, "other": rows[:3]}, wide(columns) @ wide(rows[:3])
    raise NotImplementedError(name)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_every_length_up_to_two_vectors(
    caller: Caller, name: str, dtype: torch.dtype, step: int
) -> None:
    maker = Maker(dtype)

    def make(*shape: int) -> torch.Tensor:
        return maker(*shape[:-1], shape[-1] * step)[..., ::step]

    def typed(values: torch.Tensor) -> torch.Tensor:
        """In the type of the operands, unless the results have another one."""
        return values.to(dtype) if values.dtype in (torch.float64, torch.int64) else values

    def memory_of(values: torch.Tensor) -> torch.Tensor:
        *outer, last = values.shape
        return Maker(typed(values).dtype)(*outer, last * step)[..., ::step]

    for length in range(2 * 16 + 2):
        arguments, exact = operands(name, make, length)
        results = exact if isinstance(exact, dict) else {"out": exact}
        is_in_place = results.keys() <= arguments.keys()
        (first, (out, expected)), *others = (
            (each, (arguments.pop(each) if is_in_place else memory_of(values), typed(values)))
            for each, values in results.items()
        )
        example = Example(
            title=f"length {length}, step {step}",
            arguments=arguments,
            name=first,
            out=out,
            expected=expected,
            others=dict(others),
            # Quantized numbers are exact.
            tolerance=Tolerance()
            if expected.element_size() == 1
            else tolerance(dtype, ulps=128, size=32.0 * 33),
            keeps_out=is_in_place,
        )
        check(caller, name, example)


def cast(caller: Caller, x: torch.Tensor, target: torch.dtype) -> torch.Tensor:
    out = torch.full(x.shape, 77).to(target)
    caller.call("cast", {"input": x}, {"out": out})
    return out


class TestCasts:
    """Every 16-bit float and what is rounded to it, limits of integers, every byte of a bool."""

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_every_16_bit_float(self, caller: Caller, dtype: torch.dtype) -> None:
        self._compare(caller, torch.arange(2**16, dtype=torch.int32).short().view(dtype))

    @pytest.mark.parametrize("target", [torch.float16, torch.bfloat16], ids=str)
    def test_the_float32_around_them(self, caller: Caller, target: torch.dtype) -> None:
        upper = torch.arange(2**16).unsqueeze(1) << 16
        # The lower bits at which the 16 or 13 that are lost begin, tie, and end.
        lower = torch.tensor([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
        self._compare(caller, (upper + lower).int().view(torch.float32).ravel(), target)

    def _compare(self, caller: Caller, x: torch.Tensor, *targets: torch.dtype) -> None:
        for target in targets or FLOATS:
            expected, out = x.to(target), cast(caller, x, target)
            torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(out.signbit()[~x.isnan()], expected.signbit()[~x.isnan()])

    @pytest.mark.parametrize("target", INTEGERS, ids=str)
    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    def test_floats_in_and_out_of_range(
        self, caller: Caller, dtype: torch.dtype, target: torch.dtype
    ) -> None:
        values = [*HOSTILE, torch.finfo(dtype).max, 0.99, 300.75, 70000.0]
        values += [2.0**bit + step for bit in range(66) for step in (-1, -0.5, 0, 0.5, 1)]
        x = torch.tensor([*values, *(-each for each in values)], dtype=torch.float64).to(dtype)
        for floats in (x, *(torch.tensor([1.75] * 20 + [each]).to(dtype) for each in x[::7])):
            expected = [as_integer(each, target) for each in floats.tolist()]
            assert cast(caller, floats, target).tolist() == expected

    @pytest.mark.parametrize("target", [*INTEGERS, *FLOATS], ids=str)
    @pytest.mark.parametrize("dtype", INTEGERS, ids=str)
    def test_integers(self, caller: Caller, dtype: torch.dtype, target: torch.dtype) -> None:
        info = torch.iinfo(dtype)
        ends = {
            sign * (1 << bit) + step for bit in range(65) for sign in (1, -1) for step in (-1, 0)
        }
        x = torch.tensor([end for end in sorted(ends) if info.min <= end <= info.max], dtype=dtype)
        # Through float32, as torch rounds to 16 bits.
        expected = (x if target.itemsize > 2 or target in INTEGERS else x.float()).to(target)
        assert torch.equal(cast(caller, x, target), expected)

    @pytest.mark.parametrize("target", [*FLOATS, *INTEGERS], ids=str)
    def test_any_byte_of_a_bool(self, caller: Caller, target: torch.dtype) -> None:
        x = torch.arange(256).byte().view(torch.bool)
        assert cast(caller, x, target).tolist() == [0] + [1] * 255


# Kernels by the beginning of their names, and vector instructions with which their loops do the
# work: "fmla 4s" multiplies and adds four floats.
LOOPS = {
    "AddElements<float>": "fmla 4s",
    "AddElements<double>": "fmla 2d",
    "AddElements<Float16>": "fcvtl 4s, fmla 4s, fcvtn 4h",
    "AddElements<BFloat16>": "shl 4s, fmla 4s",
    "AddElements<int>": "mla 4s",
    "AddElements<signed char>": "mla 16b",
    "MultiplyElements<float>": "fmul 4s",
    "GatedElements<float, 0>": "fmla 4s, fdiv 4s",  # by silu
    "GatedElements<float, 1>": "fmla 4s, fdiv 4s",
    "GatedElements<float, 2>": "fmla 4s, fdiv 4s",
    "SoftmaxRow<float>": "fmla 4s",
    "RmsNormRow<float, float>": "fmla 4s, fmul 4s",
    "ExtendExtremes<float>": "fcmgt 4s",
    "Quantize<float, signed char>": "fcvtns 4s",
    "Quantize<Float16, Float8>": "fcvtl 4s, fmul 4s",
    "RotateHeads<float, true>": "fmla 4s",
    "RotateHeads<Float16, false>": "fcvtl 4s, fmla 4s, fcvtn 4h",
    "MultiplyPacked<float,": "fmla 4s",
    "MultiplyPacked<unsigned int,": "mla 4s",
    "MultiplyRowsInPlace<float,": "fmla 4s",
    "Dots<Float16,": "fcvtl 4s, fmla 4s",
    "TruncateSmall<float>": "fcvtzs 4s",
    "TruncateSmall<double>": "fcvtzs 2d",
    "ConvertInt32<long>": "sxtl 2d",
    "Widen<Float16>": "fcvtl 4s",
    "Narrow<Float16>": "fcvtn 4h",
}


@pytest.fixture(scope="module")
def kernels(built: Path) -> dict[str, str]:
    """The instructions of each kernel and those that it calls, by its name without namespaces."""
    command = ["aarch64-linux-gnu-objdump", "-dC", "--no-show-raw-insn", str(built / LIBRARY)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    functions = re.findall(r"^[0-9a-f]+ <(?:\w+ )?(\S*baseline::.*)>:\n((?:.+\n)+)", text, re.M)
    bodies = {_short(name): body for name, body in functions}
    return {
        name: body + "".join(bodies.get(_short(called), "") for called in CALL.findall(body))
        for name, body in bodies.items()
    }


CALL = re.compile(r"\tbl\t[0-9a-f]+ <(?:\w+ )?(\S*baseline::.*)>$", re.MULTILINE)


def _short(name: str) -> str:
    """Without namespaces, parameters, and the type of an enumerator."""
    return re.sub(r"\((?:[a-z]+::)+Activation\)|[a-z:]+::", "", name).partition("(")[0]


@pytest.mark.parametrize(("kernel", "instructions"), LOOPS.items(), ids=LOOPS)
def test_loops_are_vectors(kernels: dict[str, str], kernel: str, instructions: str) -> None:
    for instruction in instructions.split(", "):
        name, lanes = instruction.split()
        pattern = re.compile(rf"\t{name}2?\tv\d+\.{lanes}\b")
        found = [pattern.search(body) for full, body in kernels.items() if full.startswith(kernel)]
        assert any(found), f"{instruction} in {len(found)} kernels"


def test_the_exponential_function_does_not_divide(kernels: dict[str, str]) -> None:
    """Its coefficients are constants; swiglu divides vectors, softmax once a row."""
    assert "\tfdiv\td" not in kernels["GatedElements<double, 0>"]
    assert kernels["SoftmaxRow<double>"].count("\tfdiv\td") <= 2
