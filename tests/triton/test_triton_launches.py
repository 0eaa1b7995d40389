"""The Triton backend's calls of NVIDIA's driver, recorded by a library with its interface."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.triton.recorded_calls import LOG, PARAMETERS
from tests.triton.triton_workplace import ROOT, TARGETS, Generated, Library, cubin_in

HERE = Path(__file__).parent
CAPABILITIES = {80: "8.0", 90: "9.0"}
PLACES = {"input": 1, "a": 1, "other": 2, "gate": 2, "weight": 2, "b": 2, "out": 8}
PLACES |= {"query": 1, "key": 2, "value": 3, "positions": 4, "slot_mapping": 4}
PLACES |= {"logits": 1, "top_ks": 2, "top_ps": 3, "seeds": 4}
PLACES |= {"cos_sin_cache": 5, "key_cache": 5, "value_cache": 6, "attn_mask": 7}
PLACES |= {"gating_output": 1, "e_score_correction_bias": 5, "topk_weights": 8}
PLACES |= {"topk_indices": 6, "token_expert_indices": 7}
PLACES |= {"q": 1, "k": 2, "v": 3, "k_cache": 2, "v_cache": 3, "cu_seqlens_q": 4}
PLACES |= {"cu_seqlens_k": 5, "seqused_k": 6, "cache_seqlens": 6, "block_table": 7}
PLACES |= {"alibi_slopes": 9, "softmax_lse": 10}
INDICES = (
    *("positions", "slot_mapping", "top_ks", "seeds", "topk_indices", "token_expert_indices"),
    *("cu_seqlens_q", "cu_seqlens_k", "seqused_k", "cache_seqlens", "block_table"),
)
FLOATS = ("topk_weights", "e_score_correction_bias", "alibi_slopes", "softmax_lse")

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """What calls are recorded with."""

    calls: Path  # calls.cc as a library
    driver: Path  # the folder of the recording driver
    rows: Sequence[Json]  # of kernels.json
    log: Path

    def run(
        self,
        *calls: Json,
        devices: str = "9.0",
        threads: int = 0,
        current: int | None = None,
        **environment: str,
    ) -> list[Json]:
        """Makes calls in a process of their own; returns their results."""
        job = {
            "library": str(self.calls),
            "calls": calls,
            "threads": threads,
            "current": current,
        }
        finished = subprocess.run(
            [sys.executable, HERE / "recorded_calls.py"],
            env=self.environment(devices) | environment,
            input=json.dumps(job),
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        outcomes: list[Json] = json.loads(finished.stdout)
        return outcomes

    def environment(self, devices: str) -> dict[str, str]:
        self.log.parent.mkdir(exist_ok=True)
        return {
            **os.environ,
            LOG: str(self.log),
            "LD_LIBRARY_PATH": str(self.driver),
            "RECORDING_DRIVER_DEVICES": devices,
        }

    def recorded(self, name: str | None = None) -> list[Json]:
        """All calls of the driver so far, or those of one function."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if name in (None, line["call"])]

    def variant(self, launch: Json, target: int, operator: str | None = None) -> Json:
        """The row of kernels.json whose machine code was launched; two operators can share it."""
        code = Path(f"{self.log}.{launch['library']}.cubin").read_bytes()
        digest = hashlib.sha256(code).hexdigest()
        (row,) = (
            row
            for row in self.rows
            if (row["target"], row["cubin_sha256"]) == (target, digest)
            and operator in (None, row["operator"])
        )
        return row


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libcuda.so.1."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler is installed")
    folder = tmp_path_factory.mktemp("driver")
    options = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    name = "libcuda.so.1"
    subprocess.run(
        ["cc", *options, f"-Wl,-soname,{name}", HERE / "recording_driver.c", "-o", folder / name],
        check=True,
    )
    return folder


@pytest.fixture(scope="session")
def calls(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library for Python that calls operators."""
    path = tmp_path_factory.mktemp("calls") / "libcalls.so"
    options = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    include = (f"-I{ROOT / 'src' / 'include'}", f"-I{library.build / 'include'}")
    link = (library.path, f"-Wl,-rpath,{library.path.parent}")
    subprocess.run(["c++", *options, *include, HERE / "calls.cc", *link, "-o", path], check=True)
    return path


@pytest.fixture
def workplace(calls: Path, driver: Path, generated: Generated, tmp_path: Path) -> Workplace:
    log = tmp_path / "driver" / "calls.jsonl"
    return Workplace(calls=calls, driver=driver, rows=generated.rows, log=log)


def address_of(name: str) -> int:
    """An aligned address for a tensor that is never read."""
    return PLACES[name] << 40


def call(operator: str, dtype: str, **arguments: Any) -> Json:
    """A call with tensors of one type, given as shape, or shape and strides."""
    given = {
        name: tensor(name, type_of(name, dtype), value) if name in PLACES else value
        for name, value in arguments.items()
    }
    return {"operator": operator, "arguments": given}


def type_of(name: str, dtype: str) -> str:
    if name in FLOATS:
        return "float32"
    return "int64" if name in INDICES else dtype


def tensor(name: str, dtype: str, value: Any) -> Json:
    shape, strides = value if value and isinstance(value[0], tuple) else (value, None)
    if strides is None:
        strides, size = [], 1
        for extent in reversed(shape):
            strides.insert(0, size)
            size *= extent
    return {"address": address_of(name), "dtype": dtype, "shape": shape, "strides": strides}


def rms_norm(rows: int, columns: int, dtype: str = "float16") -> Json:
    shape = (rows, columns)
    return call("rms_norm", dtype, input=shape, weight=(columns,), out=shape)


def gemm(m: int, n: int, k: int, dtype: str = "float16", **options: Any) -> Json:
    a = (k, m) if options.get("trans_a") else (m, k)
    b = (n, k) if options.get("trans_b") else (k, n)
    return call("gemm", dtype, **{"a": a, "b": b, "out": (m, n), **options})


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a call is to launch."""

    variant: str
    grid: int  # along x, the only dimension that kernels use
    request: Json
    target: int | None = None  # None: the same for all
    parameters: Json = field(default_factory=dict)  # there may be more of them


def case(
    request: Json, variant: str, grid: int, target: int | None = None, **parameters: Any
) -> Expected:
    return Expected(
        request=request, variant=variant, grid=grid, target=target, parameters=parameters
    )


def softmax(*shape: int, strides: tuple[int, ...] | None = None) -> Json:
    value = (shape, strides) if strides else shape
    return call("causal_softmax", "float32", input=value, out=shape)


def swiglu(dtype: str, **operands: Any) -> Json:
    return call("swiglu", dtype, **operands)


def halves(operator: str, rows: int, columns: int) -> Json:
    return call(operator, "float16", input=(rows, 2 * columns), out=(rows, columns))


def rotation(query: Any, rotated: int, dtype: str = "float16", **options: Any) -> Json:
    """Five tokens with heads of 64 elements, without a key."""
    given = {"positions": (5,), "query": query, "head_size": 64, "cos_sin_cache": (100, rotated)}
    return call("rotary_embedding", dtype, **given, **options)


def attention(
    queries: Any, keys: Any, dtype: str = "float16", mask: Any = None, **options: Any
) -> Json:
    """Keys and values of one shape, and an out of that of the queries, as shapes or strided."""
    out = queries[0] if isinstance(queries[0], tuple) else queries
    given = {"query": queries, "key": keys, "value": keys, "out": out, **options}
    if mask is not None:
        given["attn_mask"] = mask
    return call("scaled_dot_product_attention", dtype, **given)


def sampling(logits: Any, index: str = "int64", dtype: str = "float32", **options: Any) -> Json:
    """For a batch of eight rows."""
    given = {"logits": logits, "top_k": 50, "top_p": 0.5, "seed": -7, "out": (8,), **options}
    request = call("top_k_top_p_sampling_from_logits", dtype, **given)
    for name in ("top_ks", "seeds", "out"):
        if name in given:
            request["arguments"][name]["dtype"] = index
    return request


def topk(experts: int, chosen: int = 4, dtype: str = "float16", **options: Any) -> Json:
    """The experts of 65 tokens."""
    outs = dict.fromkeys(("topk_weights", "topk_indices", "token_expert_indices"), (65, chosen))
    return call("topk_softmax", dtype, gating_output=(65, experts), **options, **outs)


def sequences(
    queries: Any, keys: Any, longest: int = 9, dtype: str = "float16", **options: Any
) -> Json:
    """Three of them, with keys and values of one shape."""
    out = queries[0] if isinstance(queries[0], tuple) else queries
    lengths = {"cu_seqlens_q": (4,), "max_seqlen_q": longest, "max_seqlen_k": 99}
    if "seqused_k" not in options:
        lengths["cu_seqlens_k"] = (4,)
    given = {"q": queries, "k": keys, "v": keys, "out": out, **lengths, **options}
    return call("flash_attn_varlen_func", dtype, **given)


def tokens(queries: Any, caches: Any, dtype: str = "float16", **options: Any) -> Json:
    """Those of four sequences."""
    given = {"q": queries, "k_cache": caches, "v_cache": caches, "cache_seqlens": (4,), **options}
    return call("flash_attn_with_kvcache", dtype, out=queries, **given)


def with_bool_mask(request: Json) -> Json:
    request["arguments"]["attn_mask"]["dtype"] = "bool"
    return request


def with_float32_cache(request: Json) -> Json:
    request["arguments"]["cos_sin_cache"]["dtype"] = "float32"
    return request


# The conditions of every operator's build.py, on both sides of each.
DISPATCH = {
    # Blocks for rows without gaps whose size is a multiple of 16.
    "row of 16": case(rms_norm(33, 16), "float16_row128", 3, rows=33, inner_rows=33, columns=16),
    "row of 128": case(rms_norm(33, 128), "float16_row128", 3, columns=128),
    "row of 144": case(rms_norm(33, 144), "float16_row1024", 17),
    "row of 1040": case(rms_norm(33, 1040, "bfloat16"), "bfloat16_row4096", 33),
    "row of 4112": case(rms_norm(33, 4112, "float32"), "float32_row16384", 33),
    "row of 16400": case(rms_norm(33, 16400), "float16_loop", 33),
    "odd row": case(rms_norm(33, 130), "float16_strided", 33, input_column=1, out_column=1),
    "rows of a transposed view": case(
        call("rms_norm", "float16", input=((4, 3, 64), (64, 256, 1)), weight=(64,), out=(4, 3, 64)),
        "float16_row128",
        1,
        rows=12,
        inner_rows=3,
        input_inner=256,
        input_outer=64,
        out_inner=64,
        out_outer=192,
    ),
    "rows apart by an odd number": case(
        call("rms_norm", "float16", input=((4, 64), (65, 1)), weight=(64,), out=(4, 64)),
        "float16_strided",
        4,
        input_inner=65,
    ),
    "weight with gaps": case(
        call("rms_norm", "float16", input=(4, 64), weight=((64,), (2,)), out=(4, 64)),
        "float16_strided",
        4,
        weight_column=2,
    ),
    "eps": case(
        call("rms_norm", "float16", input=(4, 64), weight=(64,), out=(4, 64), eps=0.25),
        "float16_row128",
        1,
        eps=0.25,
    ),
    "softmax of heads": case(
        softmax(2, 3, 32, 64), "float32_row128", 12, rows=192, inner_rows=32, columns=64
    ),
    "softmax of heads apart": case(
        softmax(3, 32, 64, strides=(64, 192, 1)),
        "float32_row128",
        6,
        rows=96,
        input_inner=192,
        input_outer=64,
        out_inner=64,
        out_outer=2048,
    ),
    "softmax of long rows": case(softmax(5, 32768), "float32_loop", 5, inner_rows=5),
    "softmax of columns": case(
        softmax(16, 64, strides=(1, 16)), "float32_strided", 16, input_column=16
    ),
    "scaled softmax": case(
        call("scaled_softmax", "float16", input=(33, 128), scale=-0.5, out=(33, 128)),
        "float16_row128",
        3,
        rows=33,
        columns=128,
        sign=-1.0,
        scale=0.5,
    ),
    "scaled softmax times 0 of odd rows": case(
        call("scaled_softmax", "float32", input=(33, 130), scale=0.0, out=(33, 130)),
        "float32_strided",
        33,
        sign=0.0,
        scale=1.0,
    ),
    "sampling": case(
        sampling((8, 128_000), offset=3),
        "float32_aligned",
        8,
        columns=128_000,
        logits_row=128_000,
        top_k=50,
        top_p=0.5,
        seed=-7,
        offset=3,
        is_joint=0,
        top_ks_size=0,
        has_top_ps=0,
        seeds_size=0,
        out_size=8,
    ),
    "sampling by numbers of rows": case(
        sampling((8, 99), "int32", top_ks=(8,), top_ps=(8,), seeds=((8,), (2,)), joint=True),
        "float32_strided",
        8,
        is_joint=1,
        top_ks_size=4,
        top_ks_row=1,
        top_ps_row=1,
        seeds_size=4,
        seeds_row=2,
        out_size=4,
        out_row=1,
    ),
    "sampling of columns": case(
        sampling(((8, 64), (1, 8)), dtype="bfloat16"), "bfloat16_strided", 8, logits_column=8
    ),
    "swiglu": case(
        swiglu("float16", input=(8, 512), gate=(8, 512), out=(8, 512)),
        "float16_aligned_rows",
        4,
        columns=4096,
        input_row=0,
    ),
    "swiglu of halves": case(
        swiglu("float16", input=((8, 512), (1024, 1)), gate=((8, 512), (1024, 1)), out=(8, 512)),
        "float16_aligned_rows",
        8,
        columns=512,
        input_row=1024,
        gate_row=1024,
        out_row=512,
    ),
    "swiglu of narrow halves": case(
        swiglu("float16", input=((8, 496), (992, 1)), gate=((8, 496), (992, 1)), out=(8, 496)),
        "float16_elements",
        8,
        count=3968,
        columns=496,
    ),
    "swiglu broadcast": case(
        swiglu("float32", input=(4, 1), gate=(1, 5), out=(4, 5)),
        "float32_elements",
        1,
        count=20,
        columns=5,
        input_row=1,
        input_column=0,
        gate_row=0,
        gate_column=1,
        out_row=5,
        out_column=1,
    ),
    "silu_and_mul": case(
        halves("silu_and_mul", 8, 512),
        "float16_aligned_rows",
        8,
        columns=512,
        input=address_of("input") + 1024,
        gate=address_of("input"),
        input_row=1024,
        gate_row=1024,
        out_row=512,
    ),
    "gelu_and_mul of one row": case(
        halves("gelu_and_mul", 1, 512),
        "float16_aligned_rows",
        1,
        input=address_of("input") + 1024,
        gate=address_of("input"),
        input_row=0,
    ),
    "gelu_tanh_and_mul of odd rows": case(
        halves("gelu_tanh_and_mul", 8, 500),
        "float16_elements",
        8,
        input=address_of("input") + 1000,
        gate=address_of("input"),
        count=4000,
        columns=500,
        input_row=1000,
    ),
    "16 experts": case(
        topk(16),
        "float16_experts16",
        3,
        has_bias=0,
        renormalize=0,
        indices_size=8,
        experts=16,
        chosen=4,
        gating_token=16,
    ),
    "17 experts": case(
        topk(17, renormalize=True, e_score_correction_bias=(17,)),
        "float16_experts128",
        9,
        has_bias=1,
        renormalize=1,
        bias=address_of("e_score_correction_bias"),
    ),
    "128 experts": case(topk(128, 32, "bfloat16"), "bfloat16_experts128", 9, chosen=32),
    "129 experts": case(topk(129, dtype="float32"), "float32_experts1024", 65),
    "1024 experts": case(topk(1024), "float16_experts1024", 65),
    # Halves of multiples of 16 pairs, and eight heads in each program.
    "rotation": case(
        rotation((5, 640), 64),
        "float16_aligned_halves",
        10,
        heads=address_of("query"),
        cache=address_of("cos_sin_cache"),
        positions_size=8,
        head_count=10,
        pairs=32,
        sign=1.0,
        heads_token=640,
        heads_head=64,
        partner=32,
    ),
    "rotation of a slice by a float32 cache": case(
        with_float32_cache(rotation(((5, 8, 64), (1536, 64, 1)), 32)),
        "float16_float32_aligned_halves",
        5,
        heads_token=1536,
        pairs=16,
        partner=16,
    ),
    "inverse rotation": case(
        rotation((5, 64), 32, "float32", inverse=True), "float32_aligned_halves", 5, sign=-1.0
    ),
    "rotation of rows apart by an odd number": case(
        rotation(((5, 64), (65, 1)), 32, "float32"), "float32_strided", 5, heads_token=65
    ),
    "rotation of 24 pairs": case(rotation((5, 64), 48), "float16_strided", 5, partner=24),
    "rotation of neighbors": case(
        rotation((5, 64), 64, "bfloat16", is_neox=False),
        "bfloat16_strided",
        5,
        pair_step=2,
        partner=1,
    ),
    # Rows without gaps and without a mask, in blocks of 64 queries.
    "attention": case(
        attention((2, 8, 130, 128), (2, 8, 70, 128)),
        "float16_aligned",
        2 * 8 * 3,
        queries=130,
        keys=70,
        key_size=128,
        heads=1,
        inner_batches=8,
        is_causal=0,
        key_outer=8 * 70 * 128,
        key_inner=70 * 128,
        key_row=128,
        value_row=128,
    ),
    "causal attention of slices": case(
        attention(
            ((2, 4, 64, 64), (64 * 768, 64, 768, 1)),
            ((2, 4, 64, 64), (64 * 768, 64, 768, 1)),
            "bfloat16",
            is_causal=True,
            scale=0.5,
        ),
        "bfloat16_aligned",
        2 * 4,
        is_causal=1,
        shift=1,
        scale=0.5,
        query_outer=64 * 768,
        query_inner=64,
        query_row=768,
    ),
    "attention of grouped heads": case(
        attention((3, 8, 1, 64), (3, 2, 100, 64), enable_gqa=True),
        "float16_aligned",
        3 * 8,
        heads=4,
        inner_batches=2,
        query_head=64,
        query_inner=4 * 64,
        key_inner=100 * 64,
    ),
    "attention of float32": case(
        attention((17, 64), (5, 64), "float32"), "float32_aligned", 2, inner_batches=1
    ),
    "attention with a mask": case(
        attention((2, 20, 64), (2, 5, 64), mask=(20, 5)),
        "float16_strided",
        2 * 2,
        mask_kind=2,
        mask=address_of("attn_mask"),
        mask_inner=0,
        mask_row=5,
        mask_column=1,
    ),
    "attention with a bool mask": case(
        with_bool_mask(attention((2, 20, 64), (2, 5, 64), mask=(2, 1, 5))),
        "float16_strided",
        2 * 2,
        mask_kind=1,
        mask_inner=5,
        mask_row=0,
    ),
    "attention of 72 columns": case(
        attention((2, 20, 72), (2, 5, 72)), "float16_strided", 2 * 2, mask_kind=0
    ),
    # Queries of the heads that share keys are the rows of a tile.
    "16 rows of sequences": case(
        sequences((20, 8, 64), (40, 4, 64), 8),
        "float16_aligned_few",
        4 * 3,
        most_queries=8,
        query_rows=20,
        key_rows=40,
        key_limit=40,
        heads=2,
        key_heads=4,
        page_size=2**30,
        page_count=1,
        left=2**30,
        right=2**30,
        query_ends_size=8,
        key_ends_size=8,
        key_counts_size=0,
        pages_size=0,
        has_slopes=0,
        has_lse=0,
        scale=0.125,
        softcap=0.0,
        key_sequence=0,
        key_row=256,
        key_head=64,
    ),
    "18 rows of sequences": case(
        sequences(
            (20, 8, 128),
            (7, 16, 4, 128),
            dtype="bfloat16",
            seqused_k=(3,),
            block_table=((3, 5), (8, 1)),
            causal=True,
            window_size_left=30,
            softcap=50.0,
            alibi_slopes=(3, 8),
            softmax_lse=(8, 20),
        ),
        "bfloat16_aligned",
        4 * 3,
        key_rows=80,
        key_limit=2**61,
        page_size=16,
        page_count=7,
        left=30,
        right=0,
        key_ends_size=0,
        key_counts_size=8,
        pages_size=8,
        has_slopes=1,
        has_lse=1,
        softcap=50.0,
        key_page=16 * 4 * 128,
        slopes_sequence=8,
        slopes_head=1,
        lse_sequence=0,
        lse_head=20,
        lse_row=1,
        pages_sequence=8,
        pages_stride=1,
    ),
    "sequences of a fused projection": case(
        sequences(((20, 4, 64), (768, 64, 1)), ((20, 4, 64), (768, 64, 1)), dtype="float32"),
        "float32_aligned",
        4 * 3,
        query_row=768,
        key_row=768,
        out_row=256,
    ),
    "a longest sequence of more rows than there are": case(
        sequences((20, 4, 64), (20, 4, 64), 2**40), "float16_aligned", 4 * 3, most_queries=20
    ),
    "sequences of 120 columns": case(
        sequences((20, 4, 120), (20, 4, 120)), "float16_strided", 4 * 3, key_size=120
    ),
    "sequences of 256 columns": case(
        sequences((20, 4, 256), (20, 4, 256), 17), "float16_wide", 4 * 3 * 2
    ),
    "a token of each cache": case(
        tokens((4, 1, 32, 128), (4, 500, 8, 128)),
        "float16_aligned_few",
        8 * 4,
        most_queries=1,
        heads=4,
        query_ends_size=0,
        key_rows=500,
        key_sequence=500 * 8 * 128,
    ),
    "tokens of paged caches": case(
        tokens(
            (4, 17, 8, 64),
            (9, 16, 4, 64),
            block_table=(4, 3),
            softmax_lse=((4, 8, 17), (200, 20, 1)),
        ),
        "float16_aligned",
        4 * 4,
        key_sequence=0,
        key_page=16 * 4 * 64,
        lse_sequence=200,
        lse_head=20,
    ),
    # Tiles by size, layouts by strides, operands of multiples of 16.
    "skinny": case(gemm(16, 4096, 4096), "float16_skinny_nn", 128),
    "skinny of a linear layer": case(
        gemm(1, 4096, 4096, trans_b=True), "float16_skinny_nt", 128, a_row=0, b_column=4096
    ),
    "one row of a transposed a": case(
        gemm(1, 4096, 4096, trans_a=True), "float16_skinny_nn", 128, a_row=0
    ),
    "small": case(gemm(512, 512, 512), "float16_small_nn", 64),
    "large on A100": case(gemm(1280, 1280, 512), "float16_large_nn", 100, 80),
    "no longer large on A100": case(gemm(1280, 1152, 512), "float16_small_nn", 360, 80),
    "large on H100": case(gemm(2560, 1280, 512), "float16_large_nn", 100, 90),
    "no longer large on H100": case(gemm(2432, 1280, 512), "float16_small_nn", 760, 90),
    "nt": case(gemm(64, 64, 64, trans_b=True), "float16_small_nt", 1, b_column=64),
    "tn": case(gemm(64, 64, 64, "bfloat16", trans_a=True), "bfloat16_small_tn", 1, a_column=64),
    "tt": case(gemm(64, 64, 64, "float32", trans_a=True, trans_b=True), "float32_small_tt", 1),
    "a view for a flag": case(
        gemm(64, 64, 64, b=((64, 64), (1, 64))), "float16_small_nt", 1, b_column=64
    ),
    "odd m": case(gemm(67, 64, 64), "float16_small_nn", 2, m=67),
    "odd m of a transposed a": case(gemm(67, 64, 64, trans_a=True), "float16_strided", 2),
    "odd n": case(gemm(64, 67, 64), "float16_strided", 2),
    "odd k": case(gemm(64, 64, 67), "float16_strided", 1),
    "rows an odd number apart": case(
        gemm(64, 64, 64, a=((64, 64), (65, 1))), "float16_strided", 1, a_row=65, a_column=1
    ),
    "out by columns": case(  # b^T @ a^T
        gemm(32, 80, 48, out=((32, 80), (1, 32))),
        "float16_small_tt",
        2,
        a=address_of("b"),
        b=address_of("a"),
        m=80,
        n=32,
        out_row=32,
    ),
    "batches": case(
        call("gemm", "float16", a=(3, 1, 32, 64), b=(5, 64, 48), out=(3, 5, 32, 48)),
        "float16_small_nn",
        15,
        inner_batches=5,
        a_outer=2048,
        a_inner=0,
        b_outer=0,
        b_inner=3072,
        out_outer=7680,
        out_inner=1536,
    ),
    "batches that are rows": case(
        call("gemm", "float16", a=(3, 5, 8, 64), b=(64, 48), out=(3, 5, 8, 48)),
        "float16_small_nn",
        2,
        m=120,
        inner_batches=1,
        a_row=64,
    ),
    "one row in each batch": case(
        call("gemm", "float16", a=((5, 1, 64), (128, 64, 1)), b=(64, 48), out=(5, 1, 48)),
        "float16_skinny_nn",
        2,
        m=5,
        a_row=128,
        out_row=48,
    ),
    "alpha and beta": case(
        gemm(64, 64, 64, alpha=0.5, beta=-2), "float16_small_nn", 1, alpha=0.5, beta=-2.0
    ),
}


@pytest.mark.parametrize("target", TARGETS)
def test_dispatch_takes_the_documented_variant(workplace: Workplace, target: int) -> None:
    cases = {name: each for name, each in DISPATCH.items() if each.target in (None, target)}
    outcomes = workplace.run(
        *(each.request for each in cases.values()), devices=CAPABILITIES[target]
    )
    for (name, expected), outcome in zip(cases.items(), outcomes, strict=True):
        assert outcome["supported"], name
        assert outcome["error"] is None, name
        (launch,) = launches(outcome)
        row = workplace.variant(launch, target, expected.request["operator"])
        assert row["variant"] == expected.variant, name
        assert launch["grid"] == [expected.grid, 1, 1], name
        assert launch["block"] == [32 * row["num_warps"], 1, 1], name
        assert launch["shared"] == row["shared_bytes"], name
        passed = decoded(row, launch)
        wrong = {key: passed.get(key) for key, value in expected.parameters.items()}
        assert wrong == expected.parameters, name
        tensors = [
            each for each in expected.request["arguments"].values() if isinstance(each, dict)
        ]
        places = [name for name, type in row["parameters"].items() if type.startswith("*")]
        pointers = {passed[name] for name in places if passed[name]}  # without absent ones
        given = {expected.parameters[name] for name in places if name in expected.parameters}
        assert pointers == {each["address"] for each in tensors} | given, name


def launches(outcome: Json) -> list[Json]:
    return [each for each in outcome["driver"] if each["call"] == "cuLaunchKernel"]


def decoded(row: Json, launch: Json) -> Json:
    """The parameters by name, in the widths that the machine code says they have."""
    formats = {"i32": "<i", "i64": "<q", "fp32": "<f"}
    pairs = zip(row["parameters"].items(), launch["parameters"], strict=False)
    return {
        name: struct.unpack(formats.get(type, "<Q"), bytes.fromhex(text))[0]
        for (name, type), text in pairs
    }


def test_every_parameter_has_its_place(workplace: Workplace) -> None:
    """In the order of the kernel's signature, and behind it two pointers to no scratch memory."""
    request = call(
        "rms_norm",
        "float32",
        input=((2, 3, 5), (100, 30, 2)),
        weight=((5,), (3,)),
        out=((2, 3, 5), (200, 40, 4)),
        eps=0.5,
    )
    ((launch,),) = map(launches, workplace.run(request))
    pointers = b"".join(struct.pack("<Q", address_of(name)) for name in ("input", "weight", "out"))
    sizes = struct.pack("<iiif", 6, 3, 5, 0.5)
    strides = struct.pack("<7q", 100, 30, 2, 3, 200, 40, 4)
    assert bytes.fromhex("".join(launch["parameters"])) == pointers + sizes + strides + bytes(16)


def test_dimensions_that_do_not_merge_are_launched_one_by_one(workplace: Workplace) -> None:
    shape = (2, 3, 4, 64)
    apart = (shape, (64, 128, 384, 1))
    request = call("rms_norm", "float16", input=apart, weight=(64,), out=shape)
    (outcome,) = workplace.run(request)
    starts = [decoded(workplace.variant(each, 90), each) for each in launches(outcome)]
    assert [(each["input"], each["out"]) for each in starts] == [
        (address_of("input") + 2 * i * 64, address_of("out") + 2 * i * 768) for i in range(2)
    ]


def cached(operator: str, heads: int, *caches: tuple[int, ...]) -> Json:
    """Copies five tokens of heads of 64 elements."""
    shapes = dict(zip(("key_cache", "value_cache"), caches, strict=True))
    tokens = dict.fromkeys(("key", "value"), (5, heads, 64))
    return call(operator, "bfloat16", **tokens, slot_mapping=(3,), **shapes)


def test_batches_of_attention_that_are_launched_one_by_one(workplace: Workplace) -> None:
    """A launch has two of their dimensions."""
    (outcome,) = workplace.run(attention((2, 3, 4, 16, 64), (3, 4, 16, 64)))
    starts = [decoded(workplace.variant(each, 90), each) for each in launches(outcome)]
    assert [(each["query"], each["key"]) for each in starts] == [
        (address_of("query") + 2 * i * 3 * 4 * 16 * 64, address_of("key")) for i in range(2)
    ]
    assert [each["grid"] for each in launches(outcome)] == [[3 * 4, 1, 1]] * 2


def test_attention_of_more_columns_is_left_to_other_slots(workplace: Workplace) -> None:
    (outcome,) = workplace.run(attention((2, 20, 144), (2, 5, 144)))
    assert outcome["driver"] == []
    assert "slot 9 takes " in outcome["error"]
    assert "and at most 128 columns" in outcome["error"]


def test_sequences_of_more_columns_or_places_are_left_to_other_slots(workplace: Workplace) -> None:
    for outcome in workplace.run(
        sequences((20, 4, 257), (20, 4, 257)),
        tokens((4, 1, 4, 272), (4, 9, 4, 272)),
        sequences((2**27 + 1, 8, 64), (20, 1, 64)),
        sequences((20, 4, 64), (7, 8, 4, 64), seqused_k=(3,), block_table=(3, 2**27 + 1)),
    ):
        assert outcome["driver"] == []
        assert "slot 9 takes " in outcome["error"]
        assert "2^30 elements, and at most 256 columns" in outcome["error"]


def test_more_experts_are_left_to_other_slots(workplace: Workplace) -> None:
    for outcome in workplace.run(topk(1025), topk(64, 33)):
        assert outcome["driver"] == []
        assert "slot 9 takes " in outcome["error"]
        assert "at most 1024 experts, and a k of at most 32" in outcome["error"]


def test_each_cache_has_a_launch(workplace: Workplace) -> None:
    """A slot without gaps is copied as one row if its size is a multiple of 16."""
    requests = [
        cached("reshape_and_cache_flash", 20, (9, 16, 20, 64), (9, 16, 20, 64)),
        cached("reshape_and_cache", 20, (9, 20, 8, 16, 8), (9, 20, 64, 16)),
    ]
    flash, paged = map(launches, workplace.run(*requests))
    of_row = [(workplace.variant(each, 90)["variant"], each["grid"]) for each in flash]
    assert of_row == [("bits16_aligned_row", [3 * 2, 1, 1])] * 2
    passed = [decoded(workplace.variant(each, 90), each) for each in flash]
    assert [(each["tokens"], each["cache"], each["slots"]) for each in passed] == [
        tuple(map(address_of, (name, f"{name}_cache", "slot_mapping"))) for name in ("key", "value")
    ]
    rows = [workplace.variant(each, 90, "reshape_and_cache") for each in paged]
    assert [row["variant"] for row in rows] == ["bits16_elements"] * 2
    assert [each["grid"] for each in paged] == [[3 * 5, 1, 1]] * 2
    key, value = map(decoded, rows, paged)
    sizes = {"count": 1280, "block_size": 16, "slot_count": 144, "tokens_token": 1280}
    keys = {"size0": 8, "size1": 160, "cache_block": 20480, "cache_slot": 8, "cache_stride1": 128}
    values = {"size0": 1280, "size1": 1, "cache_slot": 1, "cache_stride0": 16, "slots_size": 8}
    assert key == {**key, **sizes, **keys}
    assert value == {**value, **sizes, **values}


def test_empty_calls_launch_nothing(workplace: Workplace) -> None:
    requests = [rms_norm(0, 64), rms_norm(4, 0), gemm(0, 4, 4), softmax(2, 0, 4)]
    requests.append(swiglu("float16", input=(0, 3), gate=(1, 3), out=(0, 3)))
    requests += [halves("gelu_and_mul", 0, 4), halves("gelu_and_mul", 4, 0)]
    requests.append(topk(16, 0))
    requests += [rotation((5, 0), 64), rotation((5, 64), 0), attention((2, 0, 64), (2, 5, 64))]
    requests += [sequences((20, 4, 64), (20, 4, 64), 0), tokens((4, 0, 4, 64), (4, 9, 4, 64))]
    requests += [sequences((20, 0, 64), (20, 4, 64)), tokens((4, 1, 0, 64), (4, 9, 4, 64))]
    requests.append(cached("reshape_and_cache_flash", 0, (9, 16, 0, 64), (9, 16, 0, 64)))
    for outcome in workplace.run(*requests):
        assert outcome["error"] is None
        assert outcome["driver"] == []


def test_devices_and_streams(workplace: Workplace) -> None:
    """Each device has a target of its own; its context is current for the launch only."""
    requests = [rms_norm(4, 64) | {"stream": 1000 + device} for device in range(3)]
    for device, request in enumerate(requests):
        for each in request["arguments"].values():
            each["device"] = device
    outcomes = workplace.run(*requests, *requests, devices="9.0,8.6,9.0")
    for device, outcome in enumerate(outcomes):
        (launch,) = launches(outcome)
        assert (launch["device"], launch["stream"]) == (device % 3, 1000 + device % 3)
        assert workplace.variant(launch, 80 if device % 3 == 1 else 90)
        names = [each["call"] for each in outcome["driver"]]
        assert names.index("cuCtxPushCurrent_v2") < names.index("cuLaunchKernel")
        assert names[-1] == "cuCtxPopCurrent_v2"
    assert len(workplace.recorded("cuLibraryLoadData")) == 2  # for 9.0 and for 8.6
    assert len(workplace.recorded("cuDevicePrimaryCtxRetain")) == 3


def test_the_current_context_of_the_device_is_used(workplace: Workplace) -> None:
    request = rms_norm(4, 64)
    for each in request["arguments"].values():
        each["device"] = 1
    (outcome,) = workplace.run(request, devices="9.0,9.0", current=1)
    (launch,) = launches(outcome)
    assert launch["device"] == 1
    assert "cuCtxPushCurrent_v2" not in [each["call"] for each in outcome["driver"]]


def test_eight_threads_load_a_kernel_once(workplace: Workplace) -> None:
    workplace.run(gemm(2560, 1280, 512), threads=8)  # with an attribute for its shared memory
    launched = workplace.recorded("cuLaunchKernel")
    assert {each["stream"] for each in launched} == set(range(1, 9))
    assert len({each["thread"] for each in launched}) == 8
    assert not any(each["result"] for each in workplace.recorded())
    for name in ("cuInit", "cuLibraryLoadData", "cuKernelGetFunction", "cuKernelSetAttribute"):
        assert len(workplace.recorded(name)) == 1, name


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "NVIDIA's driver can't be opened: "),
        ("int cuInit(unsigned flags) { return flags; }", "NVIDIA's driver has no cu"),
    ],
)
def test_no_driver(workplace: Workplace, tmp_path: Path, content: str | None, reason: str) -> None:
    """None that can be opened, and one that is too old."""
    library = tmp_path / "libcuda.so.1"
    library.write_text("no library")
    if content is not None:
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=content, text=True, check=True)
    (outcome,) = workplace.run(rms_norm(4, 64), LD_LIBRARY_PATH=str(tmp_path))
    assert not outcome["supported"]
    assert outcome["error"].startswith(
        f"invalid_argument: rms_norm: slot 9 can't run this: {reason}"
    )


@pytest.mark.parametrize("capability", ["7.5", "9.1", "10.0"])
def test_a_device_that_no_kernel_is_for(workplace: Workplace, capability: str) -> None:
    (outcome,) = workplace.run(rms_norm(4, 64), devices=capability)
    assert not outcome["supported"]
    assert f"device 0 has compute capability {capability}, which" in outcome["error"]
    assert f"set TRITON_TARGETS to {capability.replace('.', '')} when building" in outcome["error"]


def test_a_device_with_less_shared_memory(workplace: Workplace) -> None:
    """8.6 runs the code for 8.0: every kernel fits."""
    (outcome,) = workplace.run(gemm(1280, 1280, 512), devices="8.6")
    (launch,) = launches(outcome)
    assert workplace.variant(launch, 80)["variant"] == "float16_large_nn"


@pytest.mark.parametrize(
    "function",
    [
        "cuLibraryLoadData",
        "cuLibraryGetKernel",
        "cuKernelGetFunction",
        "cuKernelSetAttribute",
        "cuDevicePrimaryCtxRetain",
        "cuLaunchKernel",
    ],
)
def test_errors_of_the_driver_are_reported(workplace: Workplace, function: str) -> None:
    large = gemm(2560, 1280, 512)
    outcomes = workplace.run(large, large, RECORDING_DRIVER_FAIL=f"{function}:719")
    for outcome in outcomes:
        error = outcome["error"]
        assert error.startswith("runtime_error: gemm: slot 9 can't run this: "), error
        assert function in error
        assert "recorded error 719 (719)" in error
    pushed = workplace.recorded("cuCtxPushCurrent_v2")
    assert len(workplace.recorded("cuCtxPopCurrent_v2")) == len(pushed)


def test_the_recorder_refuses_what_the_driver_would(
    driver: Path, generated: Generated, tmp_path: Path
) -> None:
    source = generated.source("gemm")
    for target, variant in ((80, "float16_small_nn"), (90, "float16_large_nn")):
        (tmp_path / f"{target}.cubin").write_bytes(cubin_in(source, variant, target))
    code = [tmp_path / "80.cubin", tmp_path / "90.cubin"]
    finished = subprocess.run(
        [sys.executable, HERE / "misuse.py", *code, "100000"],
        env={**os.environ, "LD_LIBRARY_PATH": str(driver)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) == {  # cuda.h's numbers
        "before cuInit": 3,
        "no such device": 101,
        "no machine code": 200,
        "no context": 201,
        "an unknown context": 201,
        "another architecture": 209,
        "an unknown kernel": 400,
        "shared memory without the attribute": 1,
        "more shared memory than there is": 1,
        "no blocks": 1,
        "another block": 1,
        "as it should be": 0,
    }


@pytest.mark.parametrize("operator", PARAMETERS)
def test_launches_compute_what_the_operator_says(workplace: Workplace, operator: str) -> None:
    """Triton's interpreter runs the recorded launches, over the same memory."""
    pytest.importorskip("torch", reason="torch is not installed")
    table = workplace.log.parent / "kernels.json"
    environment = workplace.environment("9.0")
    table.write_text(json.dumps(workplace.rows))
    finished = subprocess.run(
        [sys.executable, HERE / "replay.py", workplace.calls, table, operator],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    results = json.loads(finished.stdout)
    problems = [f"{each['title']}: {each['problem']}" for each in results if each["problem"]]
    assert not problems, "\n".join(problems)
    ran = {variant for each in results for variant in each["variants"]}
    rows = [row for row in workplace.rows if (row["operator"], row["target"]) == (operator, 90)]
    left = {row["variant"] for row in rows} - ran
    # Large tiles take seconds: of each type those of one layout.
    assert len(left) == (9 if operator == "gemm" else 0), left
    assert all("_large_" in variant for variant in left)
