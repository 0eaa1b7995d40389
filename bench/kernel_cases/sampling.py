"""Tokens that are sampled from the logits of a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from bench.kernel_cases.case import KernelCase, counted

VOCABULARY = 128_256
# Its random number for row 0 is less than 1e-7 below 1: it draws the last token that is kept.
SEED_OF_THE_LAST = 17_845_651


def sampling() -> Iterator[KernelCase]:
    """Tokens of one request and of a batch, by the filters of usual requests."""

    def kept(
        logits: torch.Tensor, top_k: int, top_p: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The probabilities, the largest first, which of them are kept, and their tokens."""
        largest, tokens = logits.topk(top_k) if top_k else logits.sort(descending=True)
        probabilities = largest.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        return probabilities, before < top_p, tokens

    def last(logits: torch.Tensor, top_k: int, top_p: float, *_: Any) -> torch.Tensor:
        _, is_kept, tokens = kept(logits, top_k, top_p)
        return tokens.masked_fill(~is_kept, -1).amax(-1)

    def reference(
        logits: torch.Tensor, top_k: int, top_p: float, *_: Any, out: torch.Tensor
    ) -> torch.Tensor:
        probabilities, is_kept, tokens = kept(logits, top_k, top_p)
        drawn = torch.multinomial(probabilities.masked_fill(~is_kept, 0), 1)
        return torch.gather(tokens, 1, drawn, out=out.unsqueeze(1))

    for rows, top_k, top_p in ((1, 50, 0.9), (16, 50, 0.9), (1, 0, 0.9)):

        def inputs(rows: int = rows, top_k: int = top_k, top_p: float = top_p) -> tuple[Any, ...]:
            logits = 3 * torch.randn(rows, VOCABULARY)
            seeds = torch.full((rows,), SEED_OF_THE_LAST)
            return logits, top_k, top_p, SEED_OF_THE_LAST, 0, False, None, None, seeds

        filters = f"top {top_k} and {top_p}" if top_k else f"top {top_p}"
        yield KernelCase(
            operator="top_k_top_p_sampling_from_logits",
            inputs=inputs,
            exact=last,
            reference=reference,
            title=f"float32, {counted(rows, 'row')}, {filters}",
            size=rows,
            dtype=torch.float32,
            out_dtype=torch.int64,
        )
