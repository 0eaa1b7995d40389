"""The cases of ``bench.kernel_worker``: operators with operands of one shape and dtype."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from bench.kernel_cases.attention import attention_to_caches, attention_to_keys, of_tokens
from bench.kernel_cases.case import KernelCase
from bench.kernel_cases.experts import alignment, experts
from bench.kernel_cases.memory_bound import inference, memory_bound
from bench.kernel_cases.products import products
from bench.kernel_cases.quantization import quantized
from bench.kernel_cases.sampling import sampling

# On an accelerator every operand is larger than its caches (the largest today have 128 MB).
ELEMENTS = {
    "cpu": (1 << 10, 1 << 16, 1 << 20, 1 << 24),
    "cuda": (1 << 26,),
}  # of memory-bound cases
SIZES = {"cpu": (16, 64, 256, 1024), "cuda": (8192,)}  # of products
# Without a library torch takes up to 3 s for one product of 1024³ in 16 bits.
MOST_HALF_SIZE = {"cpu": 256, "cuda": 8192}
INFERENCE_ROWS = (1, 16, 128, 2048)  # on an accelerator
TOKENS = (1, 512)


def cases(device: str) -> Iterator[KernelCase]:
    """All cases of a kind of device."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for elements in ELEMENTS[device]:
            yield from memory_bound(elements, dtype)
        for size in SIZES[device]:
            if dtype is torch.float32 or size <= MOST_HALF_SIZE[device]:
                yield from products(size, dtype)
        yield from attention_to_keys(dtype)
        if device == "cpu":
            yield from attention_to_caches(dtype)
            for rows in (1, 128):
                yield from quantized(rows, dtype)
        for tokens in TOKENS:
            yield from of_tokens(tokens, dtype)
            if device == "cpu":
                yield from experts(tokens, dtype)
    yield from sampling()
    if device == "cpu":
        for tokens in TOKENS:
            yield alignment(tokens)
    else:
        for rows in INFERENCE_ROWS:
            yield from inference(rows)
