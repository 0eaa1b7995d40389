"""The example decoder: every layer by the library, with a paged cache, against torch's."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from sampling_examples import exact_tokens

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


@pytest.mark.parametrize("seed", [None, 7], ids=["greedy", "sampled"])
@pytest.mark.parametrize("slot", [0, 8])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_tokens(example: ModuleType, dtype: torch.dtype, slot: int, seed: int | None) -> None:
    weights = example.Weights(dtype, "cpu")
    sequences, difference = example.generate(weights, example.PROMPTS, STEPS, slot, seed)
    assert difference < TOLERANCES[dtype]
    assert [len(each) for each in sequences] == [len(each) + STEPS for each in example.PROMPTS]
    if dtype is not torch.float32:
        return  # rounding can exchange two tokens that are nearly as likely
    expected = [list(each) for each in example.PROMPTS]
    for step in range(STEPS):
        logits = torch.stack([example.expected_logits(weights, tokens) for tokens in expected])
        if seed is None:
            chosen = logits.argmax(1)
        else:
            seeds = torch.arange(seed, seed + len(expected))
            filters = example.TOP_K, example.TOP_P
            chosen = exact_tokens(logits, *filters, 0, offset=step, seeds=seeds)
        for tokens, token in zip(expected, chosen.tolist(), strict=True):
            tokens.append(token)
    assert sequences == expected


def test_a_request_has_its_random_tokens_in_any_batch(example: ModuleType) -> None:
    weights = example.Weights(torch.float32, "cpu")
    together, _ = example.generate(weights, example.PROMPTS, STEPS, seed=7)
    for i, prompt in enumerate(example.PROMPTS):
        alone, _ = example.generate(weights, [prompt], STEPS, seed=7 + i)
        assert alone == [together[i]]
