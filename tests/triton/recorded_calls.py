"""Calls of the Triton backend on host memory, and the resulting calls of NVIDIA's driver.

Runs in a process of its own with the recording driver: reads calls as JSON and writes their
results.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

LOG = "RECORDING_DRIVER_LOG"
# As in infini/ops/data_type.h.
DATA_TYPES = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "float64": 7,
    "bool": 11,
    "bfloat16": 15,
}

CACHED = dict.fromkeys(("key", "value", "slot_mapping", "key_cache", "value_cache"))
# The last parameters of both operators of flash-attention.
FLASH = {
    "block_table": None,
    "softmax_scale": None,
    "causal": False,
    "window_size_left": -1,
    "window_size_right": -1,
    "softcap": 0.0,
    "alibi_slopes": None,
    "out": None,
    "softmax_lse": None,
}
# The parameters, as in src/base, with the defaults of those that have one.
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "add": {"input": None, "other": None, "alpha": 1, "out": None},
    "add_rms_norm": {
        "input": None,
        "residual": None,
        "weight": None,
        "eps": 1e-6,
        "out": None,
        "residual_out": None,
    },
    "causal_softmax": {"input": None, "out": None},
    "flash_attn_varlen_func": {
        "q": None,
        "k": None,
        "v": None,
        "cu_seqlens_q": None,
        "cu_seqlens_k": None,
        "max_seqlen_q": None,
        "max_seqlen_k": None,
        "seqused_k": None,
        **FLASH,
    },
    "flash_attn_with_kvcache": {
        "q": None,
        "k_cache": None,
        "v_cache": None,
        "cache_seqlens": None,
        **FLASH,
    },
    "fused_add_rms_norm": {"input": None, "residual": None, "weight": None, "eps": 1e-6},
    "gelu_and_mul": {"input": None, "out": None},
    "gelu_tanh_and_mul": {"input": None, "out": None},
    "gemm": {
        "a": None,
        "b": None,
        "alpha": 1,
        "beta": 0,
        "trans_a": False,
        "trans_b": False,
        "out": None,
    },
    "reshape_and_cache": CACHED,
    "reshape_and_cache_flash": CACHED,
    "rms_norm": {"input": None, "weight": None, "eps": 1e-6, "out": None},
    "rotary_embedding": {
        "positions": None,
        "query": None,
        "key": None,
        "head_size": None,
        "cos_sin_cache": None,
        "is_neox": True,
        "rope_dim_offset": 0,
        "inverse": False,
    },
    "scaled_dot_product_attention": {
        "query": None,
        "key": None,
        "value": None,
        "attn_mask": None,
        "dropout_p": 0.0,
        "is_causal": False,
        "scale": None,
        "enable_gqa": False,
        "out": None,
    },
    "scaled_softmax": {"input": None, "scale": None, "out": None},
    "silu_and_mul": {"input": None, "out": None},
    "swiglu": {"input": None, "gate": None, "out": None},
    "top_k_top_p_sampling_from_logits": {
        "logits": None,
        "top_k": None,
        "top_p": None,
        "seed": None,
        "offset": 0,
        "joint": False,
        "top_ks": None,
        "top_ps": None,
        "seeds": None,
        "out": None,
    },
    "topk_softmax": {
        "gating_output": None,
        "renormalize": False,
        "e_score_correction_bias": None,
        "topk_weights": None,
        "topk_indices": None,
        "token_expert_indices": None,
    },
}

Record = dict[str, Any]


class Value(ctypes.Structure):
    """As in calls.cc."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("data_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_int64 * 8),
        ("strides", ctypes.c_int64 * 8),
    )


def value_of(argument: Any) -> Value:
    """Converts a number, None, or a tensor in the terms of ``tensor``."""
    if argument is None:
        return Value(kind=4)
    if isinstance(argument, bool):
        return Value(kind=3, integer=argument)
    if isinstance(argument, int):
        return Value(kind=1, integer=argument)
    if isinstance(argument, float):
        return Value(kind=2, real=argument)
    value = Value(kind=0, data=argument["address"], device=argument.get("device", 0))
    value.data_type = DATA_TYPES[argument["dtype"]]
    value.rank = len(argument["shape"])
    value.shape[: value.rank] = argument["shape"]
    value.strides[: value.rank] = argument["strides"]
    return value


def values_of(operator: str, arguments: Mapping[str, Any]) -> ctypes.Array[Value]:
    """All arguments of a call, in order."""
    given = {**PARAMETERS[operator], **arguments}
    values = [value_of(given[name]) for name in PARAMETERS[operator]]
    return (Value * len(values))(*values)


class Calls:
    """The library, through tests/triton/calls.cc."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._log = Path(os.environ[LOG])

    def supports(self, operator: str, arguments: Mapping[str, Any]) -> bool:
        values = values_of(operator, arguments)
        return bool(self._library.Supports(operator.encode(), values, len(values)))

    def call(self, operator: str, arguments: Mapping[str, Any], stream: int = 0) -> str | None:
        """Returns the message of an error, behind its type."""
        values = values_of(operator, arguments)
        message = ctypes.create_string_buffer(2048)
        outcome = self._library.Call(
            operator.encode(), values, len(values), ctypes.c_void_p(stream), message, len(message)
        )
        kind = (None, "invalid_argument", "runtime_error")[outcome]
        return f"{kind}: {message.value.decode()}" if kind else None

    def recorded(self, operator: str, arguments: Mapping[str, Any], stream: int = 0) -> Record:
        """The result of a call: its error, and the calls of the driver."""
        before = self._size()
        error = self.call(operator, arguments, stream)
        return {"error": error, "driver": list(self._lines(before))}

    def _size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def _lines(self, start: int) -> Iterator[Record]:
        if not self._log.exists():
            return
        with self._log.open() as file:
            file.seek(start)
            for line in file:
                yield json.loads(line)


def make_current(device: int) -> None:
    """Makes the primary context of the device this thread's current one, as torch does."""
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0


def call_in_threads(calls: Calls, operator: str, arguments: Mapping[str, Any], count: int) -> None:
    """The first call of a kernel, by several threads at the same time."""
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        error = calls.call(operator, arguments, stream=number)
        assert error is None, error

    with ThreadPoolExecutor(count) as threads:
        list(threads.map(run, range(1, count + 1)))


def main() -> None:
    job = json.load(sys.stdin)
    calls = Calls(job["library"])
    if job["current"] is not None:
        make_current(job["current"])
    outcomes = []
    for each in job["calls"]:
        supported = calls.supports(each["operator"], each["arguments"])
        if job["threads"]:
            call_in_threads(calls, each["operator"], each["arguments"], job["threads"])
        else:
            outcome = calls.recorded(each["operator"], each["arguments"], each.get("stream", 0))
            outcomes.append({**outcome, "supported": supported})
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
