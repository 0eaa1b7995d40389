"""The example decoder: every layer by the library, with a paged cache, against torch's.

On the CPU, and on ``--device`` if it is another one: a real device or a simulated one.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from platforms import default_platform
from sampling_examples import exact_tokens
from target import on_accelerators

import infini.ops
import torch

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "decoder.py"
OPERATORS = (
    "argmax",
    "flash_attn_varlen_func",
    "fused_add_rms_norm",
    "index_select",
    "linear",
    "reshape_and_cache_flash",
    "rms_norm",
    "rotary_embedding",
    "silu_and_mul",
    "top_k_top_p_sampling_from_logits",
)
STEPS = 32
# Of logits of about 1, computed in this precision in 2 layers.
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}

pytestmark = [
    pytest.mark.cpu_kernels,
    pytest.mark.full_suite,
    pytest.mark.operators(*OPERATORS),
]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("decoder", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        on_accelerators(metafunc)


@pytest.fixture
def calls(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[infini.ops.Call]:
    """The calls of the library that the example makes, in their order."""
    made: list[infini.ops.Call] = []

    class Recorder:
        def __getattr__(self, name: str) -> Any:
            operator = getattr(infini.ops, name)
            if name[0].isupper():
                return operator

            def call(*arguments: Any, **keywords: Any) -> None:
                operator(*arguments, **keywords)
                made.append(infini.ops.last_call())

            return call

    monkeypatch.setattr(example, "infini", SimpleNamespace(ops=Recorder()))
    return made


def check_tokens(
    example: ModuleType, device: str, dtype: torch.dtype, slot: int | None, seed: int | None
) -> None:
    """Compare with torch's own function on the same device, and with its tokens on the CPU."""
    weights = example.Weights(dtype, device)
    sequences, difference = example.generate(weights, example.PROMPTS, STEPS, slot, seed)
    assert difference < TOLERANCES[dtype]
    assert [len(each) for each in sequences] == [len(each) + STEPS for each in example.PROMPTS]
    if dtype is torch.float32:  # rounding can exchange two tokens that are nearly as likely
        assert sequences == tokens_by_torch(example, seed)


def tokens_by_torch(example: ModuleType, seed: int | None) -> list[list[int]]:
    weights = example.Weights(torch.float32, "cpu")
    sequences = [list(each) for each in example.PROMPTS]
    for step in range(STEPS):
        logits = torch.stack([example.expected_logits(weights, tokens) for tokens in sequences])
        if seed is None:
            chosen = logits.argmax(1)
        else:
            seeds = torch.arange(seed, seed + len(sequences))
            filters = example.TOP_K, example.TOP_P
            chosen = exact_tokens(logits, *filters, 0, offset=step, seeds=seeds)
        for tokens, token in zip(sequences, chosen.tolist(), strict=True):
            tokens.append(token)
    return sequences


@pytest.mark.parametrize("seed", [None, 7], ids=["greedy", "sampled"])
@pytest.mark.parametrize("slot", [0, 8])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_tokens(example: ModuleType, dtype: torch.dtype, slot: int, seed: int | None) -> None:
    check_tokens(example, "cpu", dtype, slot, seed)


@pytest.mark.parametrize("seed", [None, 7], ids=["greedy", "sampled"])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_tokens_on_a_device(
    example: ModuleType, device: str, dtype: torch.dtype, seed: int | None
) -> None:
    check_tokens(example, device, dtype, None, seed)


@pytest.mark.parametrize("slot", [0, 8])
def test_slots(example: ModuleType, calls: list[infini.ops.Call], slot: int) -> None:
    """With slot 0 only the operators without one run at slot 8; with slot 8 all of them do."""
    example.generate(example.Weights(torch.float32, "cpu"), example.PROMPTS, 2, slot)
    assert {each.slot for each in calls} == {slot, 8}
    others = {each.operator for each in calls if each.slot != slot}
    assert others == ({"argmax", "index_select"} if slot == 0 else set())


def test_all_runs_on_the_device(
    example: ModuleType, calls: list[infini.ops.Call], device: str
) -> None:
    example.generate(example.Weights(torch.float32, device), example.PROMPTS, 2)
    assert {each.device for each in calls} == {default_platform(device)}


def test_a_request_has_its_random_tokens_in_any_batch(example: ModuleType) -> None:
    weights = example.Weights(torch.float32, "cpu")
    together, _ = example.generate(weights, example.PROMPTS, STEPS, seed=7)
    for i, prompt in enumerate(example.PROMPTS):
        alone, _ = example.generate(weights, [prompt], STEPS, seed=7 + i)
        assert alone == [together[i]]
