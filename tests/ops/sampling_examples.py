"""Example calls and results of scaled_softmax and of sampling, for native_examples.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from native_operands import INFINITY, NAN, Example, Maker, in_margin, tolerance, wide

import torch


def scaled_softmax_example(
    title: str,
    x: torch.Tensor,
    out: torch.Tensor,
    scale: float = 0.7,
    *,
    ulps: int = 128,
    **options: Any,
) -> Example:
    return Example(
        title=title,
        arguments={"input": x, "scale": scale},
        out=out,
        expected=torch.softmax(wide(x) * scale, -1).to(out.dtype),
        tolerance=tolerance(out.dtype, ulps=ulps),
        **options,
    )


def scaled_softmax_examples(dtype: torch.dtype) -> Iterator[Example]:
    example = scaled_softmax_example
    make = Maker(dtype, -8, 8)
    yield example("contiguous", make(3, 5), make(3, 5))
    for scale in (1.0, 0.125, 3.0, -1.0, -0.4, 0.0, 1e-30, 1e-300):
        yield example(f"times {scale}", make(4, 75), make(4, 75), scale)
    yield example("a vector", make(9), make(9))
    yield example("one column", make(3, 1), make(3, 1))
    yield example("transposed", make(7, 4).t(), make(4, 7))
    yield example("sliced", make(6, 40)[::2, 1:34], make(3, 33))
    yield example("strided out", make(4, 9), make(9, 8)[:, ::2].t())
    yield example("rows apart", make(2, 5, 3, 6).transpose(1, 2), make(2, 3, 5, 6))
    yield example("four dimensions", make(3, 4, 2, 5).permute(3, 1, 0, 2), make(5, 4, 3, 2))
    yield example("expanded", make(1, 1, 6).expand(2, 4, 6), make(2, 4, 6))
    yield example("unaligned", make(100)[1:100].view(3, 33), make(101)[2:].view(3, 33))
    yield example("no rows", make(0, 3), make(0, 3))
    yield example("no columns", make(3, 0), make(3, 0))
    yield example("large", make(3, 130, 257), make(3, 130, 257))
    yield example("long rows", make(2, 8191), make(2, 8191), -0.7)
    x = make(3, 5)
    yield example("in place", x, x, keeps_out=True)
    large = make(2, 37) * 4096  # products that the exact result rounds, too
    yield example("large products", large, make(2, 37), 0.3, ulps=1 << 15)
    hostile = make(6, 6)
    hostile[0, 0], hostile[1, :2], hostile[2, 1] = 1000.0, -INFINITY, NAN
    hostile[3, 2], hostile[4] = INFINITY, -INFINITY
    for scale in (1.0, -1.0, 0.0):
        yield example(f"hostile times {scale}", hostile, make(6, 6), scale)


def wrong_scaled_softmax() -> Iterator[dict[str, Any]]:
    for shape in ((4, 3), (4,), (), (3, 5), (1, 3, 4)):
        yield {"input": torch.ones(shape), "scale": 1.0}
    for dtype in (torch.int32, torch.float16, torch.complex64):
        yield {"input": torch.ones(3, 4, dtype=dtype), "scale": 1.0}
    yield {"input": torch.tensor(1.0), "scale": 1.0, "out": torch.tensor(1.0)}


def philox(key: int, low: int, high: int) -> int:
    """The first 64 bits of Philox4x32-10, as its paper defines it, of a counter in two halves."""
    mask = 2**32 - 1
    words = [low & mask, low >> 32 & mask, high & mask, high >> 32 & mask]
    keys = [key & mask, key >> 32 & mask]
    for _ in range(10):
        first, second = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [
            second >> 32 ^ words[1] ^ keys[0],
            second & mask,
            first >> 32 ^ words[3] ^ keys[1],
            first & mask,
        ]
        keys = [(keys[0] + 0x9E3779B9) & mask, (keys[1] + 0xBB67AE85) & mask]
    return words[0] | words[1] << 32


def exact_probabilities(
    logits: torch.Tensor, top_k: int = 0, top_p: float = 1.0, *, joint: bool = False
) -> torch.Tensor:
    """Those of one row after the filters, in float64, by torch's other operators."""
    row = wide(logits)
    row = torch.where(row.isnan(), -INFINITY, row)
    largest = row.max()
    # As a softmax, also if the largest one is infinity.
    weights = torch.where(row == largest, 1.0, (row - largest).exp())
    all_weights = weights
    if 0 < top_k < len(row):
        weights = weights.masked_fill(row < row.topk(top_k).values[-1], 0)
    if top_p < 1:
        total = (all_weights if joint else weights).sum()
        largest_first = weights.sort(descending=True).values
        count = int((largest_first.cumsum(0) < float(torch.tensor(top_p)) * total).sum())
        last = largest_first[min(count, len(row) - 1)]
        weights = weights.masked_fill(weights < last, 0)
    return weights / weights.sum()


def exact_tokens(
    logits: torch.Tensor,
    top_k: int,
    top_p: float,
    seed: int,
    *,
    offset: int = 0,
    joint: bool = False,
    top_ks: torch.Tensor | None = None,
    top_ps: torch.Tensor | None = None,
    seeds: torch.Tensor | None = None,
) -> torch.Tensor:
    tokens = []
    for i, row in enumerate(logits):
        if not (row > -INFINITY).any():
            tokens.append(-1)
            continue
        probabilities = exact_probabilities(
            row,
            top_k if top_ks is None else int(top_ks[i]),
            top_p if top_ps is None else float(top_ps[i]),
            joint=joint,
        )
        random = philox(seed if seeds is None else int(seeds[i]), offset, i if seeds is None else 0)
        tokens.append(int((probabilities.cumsum(0) <= random / 2**64).sum()))
    return torch.tensor(tokens, dtype=torch.int64)


def sampling_examples(dtype: torch.dtype) -> Iterator[Example]:
    make = Maker(dtype, -3, 3)

    def example(
        title: str,
        logits: torch.Tensor,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 17,
        *,
        out: torch.Tensor | None = None,
        **options: Any,
    ) -> Example:
        expected = exact_tokens(logits, top_k, top_p, seed, **options)
        out = in_margin(expected) if out is None else out
        return Example(
            title=title,
            arguments={
                "logits": logits,
                "top_k": top_k,
                "top_p": top_p,
                "seed": seed,
                **options,
            },
            out=out,
            expected=expected.to(out.dtype),
        )

    def row_of(*values: float) -> torch.Tensor:
        return make.of([list(values)] * 3)

    yield example("plain", make(3, 50), 5, 0.9)
    for top_k in (-1, 0, 1, 2, 7, 62, 63, 64):
        yield example(f"top {top_k}", make(4, 63), top_k)
    for top_p in (0.0, 1e-9, 0.1, 0.5, 0.95, 1 - 1e-7):
        yield example(f"top {top_p}", make(4, 63), 0, top_p)
        for top_k in (1, 5, 40):
            for joint in (False, True):
                title = f"top {top_k} and {top_p}{', jointly' * joint}"
                yield example(title, make(4, 200), top_k, top_p, joint=joint)
    for seed in (0, -1, 2**63 - 1, -(2**63)):
        yield example(f"seed {seed}", make(4, 33), seed=seed)
    for offset in (1, 2**40, -1):
        yield example(f"offset {offset}", make(4, 33), offset=offset)
    yield example("int32", make(5, 33), 9, 0.8, out=in_margin(torch.zeros(5, dtype=torch.int32)))
    memory = in_margin(torch.zeros(5, 3, dtype=torch.int64))
    yield example("strided out", make(5, 33), 9, 0.8, out=memory[:, 1])
    yield example("transposed", make(33, 5).t(), 9, 0.8)
    yield example("sliced", make(10, 80)[::2, 1:67:2], 9, 0.8)
    yield example("expanded", make(1, 33).expand(6, 33), 9, 0.8)
    yield example("unaligned", make(100)[1:].view(3, 33), 9, 0.8)
    yield example("one column", make(3, 1), 9, 0.8)
    yield example("no rows", make(0, 33), 9, 0.8)
    yield example("nothing", make(0, 0), 9, 0.8)
    for index in (torch.int32, torch.int64):
        yield example(
            f"numbers of rows, {index}",
            make(6, 200),
            top_ks=in_margin(torch.tensor([1, 0, 50, 3, 200, -7], dtype=index)),
            top_ps=in_margin(torch.tensor([0.5, 0.9, 0.7, 1.0, 0.0, 0.3])),
            seeds=in_margin(torch.tensor([3, 3, -1, 0, 2**31 - 1, 5], dtype=index)),
            offset=3,
        )
    apart = torch.tensor([[1, 4, 9], [0, 50, 2]]).t()
    yield example(
        "numbers apart",
        make(3, 70),
        top_ks=in_margin(apart)[:, 0],
        top_ps=in_margin(torch.tensor([0.5, 0, 0.9, 0, 0.7, 0]))[::2],
        seeds=in_margin(apart)[:, 1],
    )
    yield from ties(example, row_of)
    hostile = make(9, 70)
    hostile[0], hostile[1] = -INFINITY, NAN
    hostile[2, :69], hostile[3, 1:] = -INFINITY, NAN
    hostile[4, 40], hostile[5, [3, 66]] = INFINITY, INFINITY
    hostile[6, ::2], hostile[7, ::3], hostile[8, 5] = NAN, -INFINITY, NAN
    for top_k, top_p in ((0, 1.0), (1, 1.0), (3, 0.5), (69, 0.9)):
        yield example(f"hostile, top {top_k} and {top_p}", hostile, top_k, top_p)
    yield example("large", make(9, 4099), 100, 0.9)
    yield example("large, of all", make(9, 4099), 0, 0.9)
    for top_k, top_p in ((50, 0.9), (0, 0.9), (0, 1.0), (5000, 1.0)):
        logits = make(2, 128_256)
        yield example(f"large, vocabulary, top {top_k} and {top_p}", logits, top_k, top_p)


def ties(example: Any, row_of: Any) -> Iterator[Example]:
    """A token is kept if it is as likely as the last one."""
    yield example("ties of the k-th", row_of(1, 2, 2, 0, 2, 3), 2)
    yield example("ties of all", row_of(*[0.5] * 40), 1)
    yield example("ties of zeros", row_of(0.0, -0.0, -1, 0.0), 1)
    yield example("ties of the last probability", row_of(0, 1, 1, -1, 1), 0, 0.3)
    yield example("ties at the exact sum", row_of(1, 1, 1, 1), 0, 0.5)
    yield example("ties of two filters", row_of(2, 1, 1, 0, 0, 0), 2, 0.5)
    yield example("ties of two joint filters", row_of(2, 1, 1, 0, 0, 0), 2, 0.5, joint=True)


def wrong_sampling() -> Iterator[dict[str, Any]]:
    right = {
        "logits": torch.ones(3, 4),
        "top_k": 2,
        "top_p": 0.5,
        "seed": 0,
        "out": torch.zeros(3, dtype=torch.int64),
    }
    yield {name: value for name, value in right.items() if name != "out"}
    integers = torch.ones(3, dtype=torch.int64)
    wrongs: Sequence[dict[str, Any]] = (
        *({"logits": torch.ones(shape)} for shape in ((3,), (2, 4), (3, 0), (3, 4, 1))),
        *({"logits": torch.ones(3, 4, dtype=each)} for each in (torch.float64, torch.int32)),
        *({"top_p": top_p} for top_p in (-0.1, 1.1, NAN, INFINITY)),
        *({name: integers[:2]} for name in ("top_ks", "seeds")),
        *({name: integers.short()} for name in ("top_ks", "seeds", "out")),
        *({name: torch.ones(3)} for name in ("top_ks", "seeds", "out")),
        *({"top_ps": torch.ones(shape)} for shape in ((2,), (3, 1))),
        *({"top_ps": torch.ones(3, dtype=each)} for each in (torch.float64, torch.float16)),
        {"logits": torch.ones(3, 4).half(), "top_ps": torch.ones(3).half()},
        {"logits": torch.ones(1).expand(3, 2**22 + 1)},
        {"out": integers.view(3, 1)},
        {"seeds": integers, "out": integers},
    )
    for wrong in wrongs:
        yield right | wrong
