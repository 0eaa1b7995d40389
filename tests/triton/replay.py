"""Replays launches: runs their kernels in Triton's interpreter with the recorded parameters.

The examples are those of the operator tests. Their tensors lie in this process's memory, which the
library takes for a device's. Triton's interpreter then runs the launched variant on that memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "ops")]

import numpy as np  # noqa: E402
import triton.language as tl  # noqa: E402
from attention_examples import exact_attention  # noqa: E402
from native_examples import OPERATORS, exact_added_norm, exact_rotation  # noqa: E402
from native_operands import (  # noqa: E402
    INFINITY,
    NAN,
    Example,
    Maker,
    outside,
    tolerance,
    wide,
)
from sampling_examples import exact_tokens  # noqa: E402
from triton.runtime import interpreter  # noqa: E402

import torch  # noqa: E402
from codegen.triton.spec import find_sources, read_plan  # noqa: E402
from tests.triton.recorded_calls import LOG, Calls, Record  # noqa: E402
from tests.triton.sequence_examples import more_of_caches, more_of_sequences  # noqa: E402

TARGET = 90
# Attention that takes seconds. Other examples differ in size only.
LEFT_OUT = ("16 queries", "17 queries", "140 queries")
SAMPLING = "top_k_top_p_sampling_from_logits"
# Operators whose examples take a second each: some of each kind, in one type.
SELECTED = {
    SAMPLING: "plain|int32|transposed|numbers of rows|ties of two|hostile, top 3",
    "flash_attn_varlen_func": "plain|0, .*(lse|blocks of 3)|1, all|2, (window|all)"
    "|3, causal window, blocks of 16|int64|one head|no |only empty|slices|columns apart"
    "|used keys|hostile",
    "flash_attn_with_kvcache": "plain|1 tokens, (plain|all|softcap)$|3 tokens, .* blocks of 5"
    "|20 tokens, all|strided|int64|no |large",
}
FORMATS = {"i32": "<i", "i64": "<q", "fp32": "<f"}


@cache
def plans() -> dict[str, Any]:
    sources = find_sources(ROOT / "src" / "triton" / "ops")
    return {source.name: read_plan(source, [TARGET]) for source in sources}


@cache
def kernels(operator: str) -> Any:
    path = plans()[operator].kernel
    spec = importlib.util.spec_from_file_location("kernel", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Replay:
    """Launches by the machine code that they run."""

    def __init__(self, rows: list[Record]) -> None:
        self._rows = {row["cubin_sha256"]: row for row in rows if row["target"] == TARGET}

    def run(self, launch: Record) -> str:
        """Returns the name of the variant."""
        code = Path(f"{os.environ[LOG]}.{launch['library']}.cubin").read_bytes()
        row = self._rows[hashlib.sha256(code).hexdigest()]
        variants = plans()[row["operator"]].variants[TARGET]
        variant = next(each for each in variants if each.name == row["variant"])
        kernel = getattr(kernels(row["operator"]), variant.kernel)
        with np.errstate(all="ignore"):
            kernel[tuple(launch["grid"])](**parameters(row, launch), **variant.constants)
        return str(row["variant"])


def parameters(row: Record, launch: Record) -> dict[str, Any]:
    """Return the parameters by name; the ones behind them are null pointers to scratch memory.

    Raises ValueError if their number or their widths differ from the kernel's.
    """
    pairs = zip(row["parameters"].items(), launch["parameters"], strict=False)
    values = {name: value_of(type_, bytes.fromhex(text)) for (name, type_), text in pairs}
    hidden = launch["parameters"][len(values) :]
    if len(hidden) != row["hidden_pointers"] or any(int(each, 16) for each in hidden):
        raise ValueError(f"hidden parameters {hidden}")
    return values


def value_of(type_: str, data: bytes) -> Any:
    if not type_.startswith("*"):
        return struct.unpack(FORMATS[type_], data)[0]
    (address,) = struct.unpack("<Q", data)
    dtype = DTYPES[type_]
    if not address:
        return torch.empty(1, dtype=dtype)  # of an empty tensor, which is never read
    memory = (ctypes.c_char * dtype.itemsize).from_address(address)
    return torch.frombuffer(memory, dtype=dtype)


DTYPES = {
    "*fp16": torch.float16,
    "*bf16": torch.bfloat16,
    "*fp32": torch.float32,
    "*i8": torch.int8,
    "*u8": torch.uint8,
    "*i16": torch.int16,
    "*i32": torch.int32,
    "*i64": torch.int64,
}


def multiply_bfloat16() -> None:
    """Triton 3.9's interpreter multiplies the bits of bfloat16 as if they were integers."""
    builder = interpreter.InterpreterBuilder
    original = builder.create_dot

    def widened(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        bits = handle.data.astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        return original(self, widened(a), widened(b), *others)

    builder.create_dot = create_dot


def examples(operator: str) -> Iterator[tuple[torch.dtype, Example]]:
    variants = plans()[operator].variants[TARGET]
    names = [name for each in variants for name in each.data_types["data_type"]]
    for dtype in (getattr(torch, each.removeprefix("k").lower()) for each in dict.fromkeys(names)):
        for example in OPERATORS[operator].examples(dtype):
            # Which differ by type only in how they are converted, and take seconds.
            is_large = example.title.partition(",")[0] == "large"
            is_repeated = is_large and dtype is not torch.float16
            if operator in SELECTED:
                is_selected = re.match(SELECTED[operator], example.title)
                is_repeated = dtype is not torch.float16 or not is_selected
            if not is_repeated and not example.title.startswith(LEFT_OUT):
                yield dtype, example
        for example in ALIGNED.get(operator, lambda _: iter(()))(dtype):
            yield dtype, example


# Cases with a variant of their own: aligned operands, of sizes from one table to the next.

ROW_SIZES = (48, 128, 144, 1024, 1040, 4096, 4112, 16384, 16400)


def aligned_rms_norm(dtype: torch.dtype) -> Iterator[Example]:
    make = Maker(dtype)
    for columns in ROW_SIZES:
        x, weight = make(3, columns), make(columns)
        scale = (wide(x).square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        yield Example(
            title=f"{columns} aligned columns",
            arguments={"input": x, "weight": weight},
            out=make(3, columns),
            expected=(wide(x) * scale * wide(weight)).to(dtype),
            tolerance=tolerance(dtype, ulps=32),
        )


def aligned_add_rms_norm(dtype: torch.dtype) -> Iterator[Example]:
    make = Maker(dtype)
    for columns in ROW_SIZES:
        x, residual, weight = make(3, columns), make(3, columns), make(columns)
        expected, total = exact_added_norm(x, residual, weight)
        yield Example(
            title=f"{columns} aligned columns",
            arguments={"input": x, "residual": residual, "weight": weight},
            out=make(3, columns),
            expected=expected,
            others={"residual_out": (make(3, columns), total)},
            tolerance=tolerance(dtype, ulps=32),
        )


def aligned_fused_add_rms_norm(dtype: torch.dtype) -> Iterator[Example]:
    for apart in aligned_add_rms_norm(dtype):
        given = apart.arguments
        yield replace(
            apart,
            arguments={"weight": given["weight"]},
            name="input",
            out=given["input"],
            others={"residual": (given["residual"], apart.results["residual_out"])},
            keeps_out=True,
        )


def aligned_causal_softmax(dtype: torch.dtype) -> Iterator[Example]:
    make = Maker(dtype, -8, 8)
    for columns in ROW_SIZES:
        rows = 37 if columns == 48 else 3
        x = make(2, rows, columns)
        hidden = ~torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        if columns > 4096:
            x[0, 0, :5000] = -INFINITY  # whole blocks of nothing
            x[1, 1] = -INFINITY
            x[1, 2, 7] = NAN
        seen = wide(x).masked_fill(hidden, -INFINITY)
        yield Example(
            title=f"{columns} aligned columns",
            arguments={"input": x},
            out=make(2, rows, columns),
            expected=torch.softmax(seen, -1).masked_fill(hidden, 0).to(dtype),
            tolerance=tolerance(dtype, ulps=128),
        )


def aligned_scaled_softmax(dtype: torch.dtype) -> Iterator[Example]:
    make = Maker(dtype, -8, 8)
    for columns, scale in product(ROW_SIZES, (0.3, -2.0, 0.0)):
        x = make(3, columns)
        if columns > 4096 and scale > 0:
            x[0, :5000] = -INFINITY  # whole blocks of nothing
        yield Example(
            title=f"{columns} aligned columns times {scale}",
            arguments={"input": x, "scale": scale},
            out=make(3, columns),
            expected=torch.softmax(wide(x) * scale, -1).to(dtype),
            tolerance=tolerance(dtype, ulps=128),
        )


def rows_of_sampling(dtype: torch.dtype) -> Iterator[Example]:
    make = Maker(dtype, -3, 3)
    for columns, top_k, top_p in ((48, 9, 0.8), (33, 9, 0.8), (4112, 9, 1.0), (4112, 0, 0.8)):
        logits = make(1, columns)
        expected = exact_tokens(logits, top_k, top_p, 5)
        yield Example(
            title=f"{columns} columns, top {top_k} and {top_p}",
            arguments={"logits": logits, "top_k": top_k, "top_p": top_p, "seed": 5},
            out=torch.zeros_like(expected),
            expected=expected,
        )


def aligned_swiglu(dtype: torch.dtype) -> Iterator[Example]:
    make = Maker(dtype)
    halves = make(3, 2 * 1040)
    for title, x, gate, out in (
        ("contiguous", make(5, 1024), make(5, 1024), make(5, 1024)),
        ("halves", halves[:, :1040], halves[:, 1040:], make(3, 1040)),
        ("one gate for all", make(3, 1536), make(1536), make(3, 1536)),
    ):
        yield Example(
            title=f"aligned {title}",
            arguments={"input": x, "gate": gate},
            out=out,
            expected=(wide(x) * wide(gate) * torch.sigmoid(wide(gate))).to(dtype).expand(out.shape),
            tolerance=tolerance(dtype, ulps=64),
        )


def aligned_rotary_embedding(dtype: torch.dtype) -> Iterator[Example]:
    """Halves of heads of several blocks of pairs, in several blocks of heads."""
    make = Maker(dtype)
    positions = torch.tensor([2, 0, 4])
    for cache_type in dict.fromkeys((dtype, torch.float32)):
        for heads, size, rotated in ((3, 128, 128), (9, 192, 160), (17, 64, 32)):
            query, cache = make(3, heads, size), Maker(cache_type)(5, rotated)
            yield Example(
                title=f"aligned {heads} heads of {size}, {rotated} rotated, {cache_type}",
                arguments={"positions": positions, "head_size": size, "cos_sin_cache": cache},
                name="query",
                out=query,
                expected=exact_rotation(positions, query, size, cache).to(dtype),
                tolerance=tolerance(dtype, size=64),
                keeps_out=True,
            )


def positions_beyond_the_cache(dtype: torch.dtype) -> Iterator[Example]:
    """Their tokens keep their heads: no error can be raised on a device."""
    make = Maker(dtype)
    for index in (torch.int32, torch.int64):
        query, cache = make(5, 2, 16), make(8, 16)
        positions = torch.tensor([7, 8, -1, 2, 2**31 - 1]).to(index)
        expected = query.clone()
        expected[[0, 3]] = exact_rotation(positions[[0, 3]], query[[0, 3]], 16, cache).to(dtype)
        yield Example(
            title=f"positions beyond the cache, {index}",
            arguments={"positions": positions, "head_size": 16, "cos_sin_cache": cache},
            name="query",
            out=query,
            expected=expected,
            tolerance=tolerance(dtype, size=64),
            keeps_out=True,
        )


def slots_beyond_the_cache(operator: str, dtype: torch.dtype) -> Iterator[Example]:
    """Their tokens are skipped. The caches of the plain example have 12 slots."""
    plain = next(OPERATORS[operator].examples(dtype))
    slots = plain.arguments["slot_mapping"]
    for index, beyond in ((torch.int32, 2**31 - 1), (torch.int64, 2**32), (torch.int64, 12)):
        kept = {name: (out.clone(), out.clone()) for name, out in plain.outs.items()}
        yield replace(
            plain,
            title=f"slots from {beyond} on, {index}",
            arguments={**plain.arguments, "slot_mapping": torch.full_like(slots, beyond).to(index)},
            out=kept["key_cache"][0],
            expected=kept["key_cache"][1],
            others={"value_cache": kept["value_cache"]},
        )


def aligned_attention(dtype: torch.dtype) -> Iterator[Example]:
    """Without a mask, in several blocks of queries and keys, also in more than two batches."""
    make = Maker(dtype, -2, 2)
    for batch, queries, keys, size, value_size in (
        ((2, 3), 1, 70, 64, 128),
        ((1, 2), 70, 130, 128, 48),
        ((2, 1, 2, 2), 18, 5, 16, 16),
    ):
        operands = make(*batch, queries, size), make(*batch, keys, size)
        value, out = make(*batch, keys, value_size), make(*batch, queries, value_size)
        for is_causal in (False, True):
            exact = exact_attention(*operands, value, None, is_causal=is_causal)
            yield Example(
                title=f"aligned {queries} queries and {keys} keys, {is_causal=}",
                arguments={
                    "query": operands[0],
                    "key": operands[1],
                    "value": value,
                    "is_causal": is_causal,
                },
                out=out,
                expected=exact.to(dtype),
                tolerance=tolerance(dtype, ulps=256, size=64),
            )


def rows_of_add(dtype: torch.dtype) -> Iterator[Example]:
    """Rows long enough for a program of their own, in up to six dimensions that do not merge."""
    make = Maker(dtype)

    def inside(*shape: int) -> torch.Tensor:
        larger = make(*(size + 1 for size in shape[:-1]), shape[-1] + 16)
        return larger[tuple(map(slice, shape))]

    for title, x, y, out in (
        ("padded rows and a bias", inside(3, 1040), make(1040), inside(3, 1040)),
        ("rows and a column", inside(3, 700), make(3, 1), inside(3, 700)),
        ("odd rows", make(3, 701)[:, :700], make(3, 700), inside(3, 700)),
        ("five dimensions", *(inside(2, 3, 2, 3, 528) for _ in range(3))),
        ("six dimensions", *(inside(2, 1, 2, 2, 2, 2, 300) for _ in range(3))),
    ):
        yield Example(
            title=title,
            arguments={"input": x, "other": y, "alpha": 3},
            out=out,
            expected=(wide(x) + 3 * wide(y)).to(dtype),
            tolerance=tolerance(dtype, size=16),
        )


def aligned_gemm(dtype: torch.dtype) -> Iterator[Example]:
    """Each size of tile in each layout, but of the large ones one by type: they take seconds."""
    make = Maker(dtype)
    large = {torch.float16: (False, True), torch.bfloat16: (True, True)}.get(dtype, (True, False))
    for trans_a, trans_b in product((False, True), (False, True)):
        for size, batches, m, n, k in (
            ("skinny", 1, 3, 48, 144),
            ("small", 2, 80, 48, 176),
            ("large", 104, 32, 48, 48),
        ):
            if size == "large" and (trans_a, trans_b) != large:
                continue
            a = make(batches, k, m) if trans_a else make(batches, m, k)
            b = make(batches, n, k) if trans_b else make(batches, k, n)
            out = make(batches, m, n)
            exact = (a.mT if trans_a else a).double() @ (b.mT if trans_b else b).double()
            yield Example(
                title=f"aligned {size}, {'nt'[trans_a]}{'nt'[trans_b]}",
                arguments={
                    "a": a,
                    "b": b,
                    "alpha": 0.5,
                    "beta": 2,
                    "trans_a": trans_a,
                    "trans_b": trans_b,
                },
                out=out,
                expected=(0.5 * exact + 2 * out.double()).to(dtype),
                tolerance=tolerance(dtype, size=16.0 * k),
                keeps_out=True,
            )
    a, b, out = make(48, 32), make(32, 80), make(80, 48).t()
    yield Example(
        title="aligned, into columns",
        arguments={"a": a, "b": b},
        out=out,
        expected=(wide(a) @ wide(b)).to(dtype),
        tolerance=tolerance(dtype, size=16.0 * 32),
    )


def masks_of_batches(dtype: torch.dtype) -> Iterator[Example]:
    """Each type of masks, with a part of its own for each batch, head, query and key."""
    make = Maker(dtype, -2, 2)
    shape = (2, 2, 18, 70)
    for mask in (make(*shape) > 0, make(*shape), Maker(torch.float32)(*shape)):
        query, key, value, out = (make(2, 2, rows, 8) for rows in (18, 70, 70, 18))
        is_causal = mask.dtype is torch.bool
        yield Example(
            title=f"masks of batches, {mask.dtype}",
            arguments={
                "query": query,
                "key": key,
                "value": value,
                "attn_mask": mask,
                "is_causal": is_causal,
            },
            out=out,
            expected=exact_attention(query, key, value, mask, is_causal=is_causal).to(dtype),
            tolerance=tolerance(dtype, ulps=256, size=64),
        )


def more_of_attention(dtype: torch.dtype) -> Iterator[Example]:
    yield from aligned_attention(dtype)
    yield from masks_of_batches(dtype)


def more_of_rotary_embedding(dtype: torch.dtype) -> Iterator[Example]:
    yield from aligned_rotary_embedding(dtype)
    yield from positions_beyond_the_cache(dtype)


ALIGNED: dict[str, Callable[[torch.dtype], Iterator[Example]]] = {
    "add": rows_of_add,
    "causal_softmax": aligned_causal_softmax,
    "flash_attn_varlen_func": more_of_sequences,
    "flash_attn_with_kvcache": more_of_caches,
    "gemm": aligned_gemm,
    "add_rms_norm": aligned_add_rms_norm,
    "fused_add_rms_norm": aligned_fused_add_rms_norm,
    "reshape_and_cache": partial(slots_beyond_the_cache, "reshape_and_cache"),
    "reshape_and_cache_flash": partial(slots_beyond_the_cache, "reshape_and_cache_flash"),
    "rms_norm": aligned_rms_norm,
    "rotary_embedding": more_of_rotary_embedding,
    "scaled_dot_product_attention": more_of_attention,
    "scaled_softmax": aligned_scaled_softmax,
    "swiglu": aligned_swiglu,
    SAMPLING: rows_of_sampling,
}


def tensor(value: torch.Tensor) -> Record:
    return {
        "address": value.data_ptr(),
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "strides": list(value.stride()),
    }


def run_example(calls: Calls, replay: Replay, operator: str, example: Example) -> Record:
    if not example.keeps_out:
        for out in example.outs.values():
            out.fill_(NAN if out.is_floating_point() else 77)
    before = outside(*example.outs.values())
    arguments = {**example.arguments, **example.outs}
    described = {
        name: tensor(value) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }
    outcome = calls.recorded(operator, described)
    if outcome["error"]:
        is_refused = example.is_optional and ": slot 9 takes " in outcome["error"]
        return {"variants": [], "problem": None if is_refused else outcome["error"]}
    launches = [each for each in outcome["driver"] if each["call"] == "cuLaunchKernel"]
    variants = [replay.run(launch) for launch in launches]
    try:
        allowed = example.tolerance
        for name, expected in example.results.items():
            torch.testing.assert_close(
                example.outs[name],
                expected,
                rtol=allowed.rtol,
                atol=allowed.atol,
                equal_nan=True,
                msg=partial("{}: {}".format, name),
            )
        torch.testing.assert_close(outside(*example.outs.values()), before, rtol=0, atol=0)
    except AssertionError as error:
        return {"variants": variants, "problem": str(error)}
    return {"variants": variants, "problem": None}


def main() -> None:
    library, table, operator = sys.argv[1:]
    multiply_bfloat16()
    calls = Calls(library)
    replay = Replay(json.loads(Path(table).read_text()))
    results = []
    for dtype, example in examples(operator):
        result = run_example(calls, replay, operator, example)
        results.append({"title": f"{dtype}, {example.title}", **result})
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
