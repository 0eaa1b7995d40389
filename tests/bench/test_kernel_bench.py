"""The benchmark of kernels times only those whose results are exact enough."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import torch
from ci.facts.benchmarks import read_benchmarks
from ci.protocol.agent_files import benchmark_file

ROWS, LENGTH = 128, 8192  # as long as the sums that are timed on an accelerator


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module without the library, which it calls."""
    for name in ("infini", "infini.ops"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.delitem(sys.modules, "bench.kernel_worker", raising=False)
    yield importlib.import_module("bench.kernel_worker")
    del sys.modules["bench.kernel_worker"]


def one_after_another(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Sum in float32 without blocks, which is as inexact as a kernel may be."""
    out.zero_()
    for column, row in zip(a.t(), b, strict=True):
        out.add_(torch.outer(column, row))


def with_tf32(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Multiply numbers that are rounded to the 10 bits of TF32."""
    halves = (tensor.half().float() for tensor in (a, b))
    torch.mm(*halves, out=out)


def check(worker: Any, multiply: Callable[..., None]) -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(*shape) / LENGTH**0.25 for shape in ((ROWS, LENGTH), (LENGTH, ROWS)))
    case = next(each for each in worker.cases("cuda") if each.name == f"gemm float32 {LENGTH}³")
    out = torch.empty(ROWS, ROWS)
    worker.check(case, "slot 0", partial(multiply, a, b, out), (a, b), (out,))


def test_a_long_sum_may_be_less_exact_than_a_short_one(worker: Any) -> None:
    check(worker, one_after_another)


def test_fewer_bits_are_an_error(worker: Any) -> None:
    with pytest.raises(worker.WrongResultError, match=r"slot 0: off by 0.00\d+ from float64"):
        check(worker, with_tf32)


def test_the_times_of_a_stage_can_be_read(
    worker: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "bench.kernel_times", raising=False)
    kernel_times = importlib.import_module("bench.kernel_times")
    monkeypatch.setattr(kernel_times, "kernel_worker", worker)
    timed = {"case": "add, 1 k", "seconds": {"torch": [3.0, 1.0, 2.0], "slot 0": [1.0]}}
    failed = {"case": "mul, 1 k", "error": "ValueError: inexact"}
    for cases, code in ([timed], 0), ([timed, failed], 1), ([], 1):
        document = json.dumps({"device": "the CPU", "cases": cases})
        monkeypatch.setattr(worker, "main", lambda *_, text=document: print(text))
        assert kernel_times.main(tmp_path / "new" / "times.json") == code
    assert capsys.readouterr().err == "mul, 1 k: ValueError: inexact\n"
    monkeypatch.setattr(worker, "main", lambda *_: print(json.dumps({"cases": [timed]})))
    kernel_times.main(tmp_path / benchmark_file("bench"))
    reading = read_benchmarks(tmp_path, "bench")
    found = {it.name: (it.value, it.unit, it.repetitions) for it in reading.results}
    assert found == {"add, 1 k: torch": (2.0, "s", 3), "add, 1 k: slot 0": (1.0, "s", 1)}
