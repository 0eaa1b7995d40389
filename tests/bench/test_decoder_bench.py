"""The benchmark of the decoder: torch generates what the library does, and the rows' arithmetic."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import torch
from bench.context import Context
from bench.parts import decoder

LENGTHS = (1, 17, 8)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, with torch's functions in place of the library, and of what it compiles."""
    modules = ("examples.decoder", "bench.decoder_worker")
    for name in ("infini", "infini.ops"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name in modules:
        monkeypatch.delitem(sys.modules, name, raising=False)
    found: Any = importlib.import_module("bench.decoder_worker")
    example: Any = importlib.import_module("examples.decoder")

    def logits(self: Any, batch: Sequence[Any]) -> torch.Tensor:
        for each in batch:
            each.cached = len(each.tokens)
        return torch.stack([example.expected_logits(self.weights, it.tokens) for it in batch])

    monkeypatch.setattr(found.Decoder, "logits", logits)
    monkeypatch.setattr(found, "choose", lambda logits, *_: logits.argmax(1).tolist())
    monkeypatch.setattr(found, "STEPS", 8)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # short calls on several would wait for each other
    yield found
    torch.set_num_threads(threads)
    for name in modules:
        del sys.modules[name]


def test_torch_generates_the_tokens_of_the_model_without_a_cache(worker: Any) -> None:
    found = worker.figures("float32", 2, worker.Sizes(), LENGTHS)
    assert found["tokens"] == len(LENGTHS) * worker.STEPS
    assert list(found["seconds"]) == list(decoder.VARIANTS)
    assert {len(seconds) for seconds in found["seconds"].values()} == {2}


@pytest.mark.parametrize("dtype", decoder.DTYPES)
def test_other_tokens_are_an_error_in_float32(
    worker: Any, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(worker, "choose", lambda logits, *_: logits.argmin(1).tolist())
    error = worker.figures(dtype, 1, worker.Sizes(), LENGTHS).get("error")
    expected = "torch and torch.compile: other tokens than those of infini.ops"
    assert error == (expected if dtype == "float32" else None)


def test_a_row_is_the_ratio_to_the_faster_of_torchs_two(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seconds = {"infini.ops": [1.0, 2.0, 3.0], "torch": [2.0, 2.0, 4.0], "torch.compile": [4.0] * 3}
    cases = {
        "float32": {"tokens": 256, "seconds": seconds},
        "bfloat16": {"error": "torch: other tokens"},
    }

    def run(_: Context, command: Sequence[str], environment: Any) -> SimpleNamespace:
        dtype, rounds = command[-2:]
        assert (rounds, environment["OMP_NUM_THREADS"]) == ("7", "1")
        return SimpleNamespace(stdout=json.dumps(cases[dtype]))

    monkeypatch.setattr(Context, "run", run)
    context = Context(
        scratch=tmp_path, output_dir=tmp_path, repeat=31, installed=True, runs=3, database=None
    )
    first, second = decoder.measure(context)
    assert (first.key, first.value, first.met) == ("decoder-cpu-float32", 0.75, True)
    assert first.note == "to torch; 95 % of rounds 0.51 to 0.99"
    assert (second.key, second.value, second.error) == (
        "decoder-cpu-bfloat16",
        None,
        "torch: other tokens",
    )
    assert first.table is not None
    assert first.table.rows == (("float32", "128", "128", "64"),)
