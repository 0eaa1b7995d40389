"""The native operators on NumPy arrays, against NumPy in float64: the library without torch.

Needs the installed library, NumPy and pytest, on any Python that the library supports. With
torch, ``tests/ops`` has all operators.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle
import pydoc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pytest
from test_quantized_arrays import NAMES as QUANTIZED

import infini.ops

FLOATS = ("float32", "float64", "float16")
SMALL_FLOATS = ("float32", "float16")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = ("int8", "int16", "int32", "int64", *UNSIGNED)
WIDE_INTEGERS = ("int32", "int64", "uint32", "uint64")
ANY = (*FLOATS, *INTEGERS, "bool")
GARBAGE = 77
FACTOR = 4  # the largest value of a floating-point operand

Array: TypeAlias = np.ndarray
Make = Callable[..., Array]


def matrix(make: Make) -> tuple[Array, ...]:
    return (make(5, 33),)


def matrices(make: Make) -> tuple[Array, ...]:
    return make(5, 33), make(5, 33)


def halves(make: Make) -> tuple[Array, ...]:
    return (make(5, 66),)


def factors(make: Make) -> tuple[Array, ...]:
    return make(17, 33), make(33, 20)


def exact_linear(x: Array, weight: Array, bias: Array) -> Array:
    return x @ weight.T + bias


def exact_rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + eps) * weight


def exact_added_norm(x: Array, residual: Array, weight: Array) -> tuple[Array, Array]:
    total = x + residual
    return exact_rms_norm(total, weight, 1e-6), total


def added(make: Make) -> tuple[Array, ...]:
    return make(5, 33), make(5, 33), make(33)


Tokens = tuple[Array, Array, Array, Array, Array]


def tokens(make: Make, *caches: tuple[int, ...]) -> Tokens:
    """Of two heads of 12 elements, for caches of three blocks of four slots."""
    key_cache, value_cache = (make(*shape) for shape in caches)
    return make(5, 2, 12), make(5, 2, 12), np.array([11, 3, -1, 4, 0]), key_cache, value_cache


def exact_caches(
    key: Array, value: Array, slots: Array, keys: Array, values: Array
) -> tuple[Array, Array]:
    keys, values = keys.copy(), values.copy()
    for token, slot in enumerate(slots.tolist()):
        block, offset = divmod(slot, 4)
        for tokens, cache in ((key, keys), (value, values)):
            place = cache[block, offset] if keys.ndim == 4 else cache[block, :, :, offset]
            if slot >= 0:
                place[...] = tokens[token].reshape(place.shape)
    return keys, values


def rotated(make: Make) -> tuple[Any, ...]:
    return np.array([7, 0, 3, 3, 5]), make(5, 66), make(5, 22), 22, make(8, 16)


def exact_rotary_embedding(
    positions: Array, query: Array, key: Array, size: int, cache: Array
) -> tuple[Array, Array]:
    cosine, sine = np.split(cache[positions][:, np.newaxis], 2, -1)

    def rotate(heads: Array) -> Array:
        x, y, rest = np.split(heads.reshape(5, -1, size), (8, 16), -1)
        turned = x * cosine - y * sine, y * cosine + x * sine, rest
        return np.concatenate(turned, -1).reshape(heads.shape)

    return rotate(query), rotate(key)


def exact_causal_softmax(x: Array) -> Array:
    rows, columns = x.shape
    seen = np.tri(rows, columns, columns - rows, dtype=bool)
    powers = np.where(seen, np.exp(x - x.max(-1, keepdims=True)), 0)
    return powers / powers.sum(-1, keepdims=True)


def exact_scaled_softmax(x: Array, scale: float) -> Array:
    powers = np.exp((x - x.max(-1, keepdims=True)) * scale)
    return powers / powers.sum(-1, keepdims=True)


def gated_halves(x: Array, activation: Callable[[Array], Array]) -> Array:
    first, second = np.split(x, 2, -1)
    return activation(first) * second


def exact_silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def exact_gelu(x: Array) -> Array:
    return x * np.vectorize(math.erfc)(-x * math.sqrt(0.5)) / 2


def exact_gelu_tanh(x: Array) -> Array:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def exact_attention(query: Array, key: Array, value: Array) -> Array:
    scores = query @ key.swapaxes(-1, -2)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ value


def exact_sequences(
    query: Array, key: Array, value: Array, counts: Array, table: Array | None = None
) -> Array:
    """Of caches, whose first `counts` rows are the keys of each sequence."""
    out = np.zeros((*query.shape[:3], value.shape[-1]))
    for i, count in enumerate(counts.tolist()):
        own = (i,) if table is None else (table[i],)
        keys, values = (each[own].reshape(-1, *each.shape[2:])[:count] for each in (key, value))
        for head in range(query.shape[2]):
            own_head = head // (query.shape[2] // key.shape[2])
            rows = query[i, :, head], keys[:, own_head], values[:, own_head]
            out[i, :, head] = exact_attention(*rows)
    return out


def exact_varlen(query: Array, key: Array, value: Array, *lengths: Any) -> Array:
    outs = []
    for begin, end in itertools.pairwise(lengths[0].tolist()):
        own = (each[np.newaxis, begin:end] for each in (query, key, value))
        rows, keys, values = own
        outs.append(exact_sequences(rows, keys, values, np.array([end - begin]))[0])
    return np.concatenate(outs)


def exact_softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def exact_sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def exact_topk(scores: Array, function: Callable[[Array], Array]) -> tuple[Array, ...]:
    """Return the weights and the places of the three largest scores of each row."""
    experts = np.argsort(-scores, -1, kind="stable")[:, :3]
    weights = np.take_along_axis(function(scores), experts, -1)
    return weights, experts, np.arange(experts.size).reshape(3, -1).T


def exact_grouped_topk(scores: Array, *_: Any) -> tuple[Array, ...]:
    """Return the three largest scores of each row in two of four groups, twice."""
    groups = scores.reshape(5, 4, 8)
    best = np.sort(groups, -1)[..., -2:].sum(-1)
    is_left = best < np.sort(best, -1)[:, 2:3]
    kept = np.where(is_left[..., np.newaxis], -np.inf, groups).reshape(5, 32)
    experts = np.argsort(-kept, -1, kind="stable")[:, :3]
    return 2 * np.take_along_axis(scores, experts, -1), experts


def exact_blocks(ids: Array, *_: int) -> tuple[Array, ...]:
    """Return the choices of four experts, of which the third has none, in blocks of two."""
    empty = ids.size
    places = [np.flatnonzero(ids == expert).tolist() for expert in range(4)]
    padded = [own + [empty] * (len(own) % 2) for own in places]
    blocks = [expert for expert, own in enumerate(padded) for _ in range(len(own) // 2)]
    every = [*itertools.chain(*padded)]
    rest = 14 - len(every)
    return (
        np.array(every + [empty] * rest),
        np.array(blocks + [0] * (rest // 2)),
        np.array([len(every)]),
    )


@dataclass(frozen=True)
class Operator:
    """How to call one operator, and its exact result in float64 or int64."""

    name: str
    operands: Callable[[Make], tuple[Any, ...]]
    exact: Callable[..., Array | tuple[Array, ...]]
    dtypes: tuple[str, ...] = FLOATS
    keywords: tuple[tuple[str, Any], ...] = ()
    as_list: bool = False
    outs: tuple[str, ...] = ("out",)
    in_place: tuple[int, ...] = ()
    """The places of the operands that are written if there are no outs."""
    out_dtypes: tuple[str, ...] = ()
    """Of the outs, if that is not the type of the operands."""


OPERATORS = (
    Operator("add", matrices, lambda x, y: x + 2 * y, FLOATS + INTEGERS, (("alpha", 2),)),
    Operator(
        "add_rms_norm",
        added,
        exact_added_norm,
        SMALL_FLOATS,
        outs=("out", "residual_out"),
    ),
    Operator("cast", matrix, lambda x: x, ANY),
    Operator("cat", matrices, lambda *arrays: np.concatenate(arrays), ANY, (("dim", 0),), True),
    Operator("causal_softmax", matrix, exact_causal_softmax),
    Operator(
        "flash_attn_varlen_func",
        lambda make: (
            *(make(9, heads, 8) / 4 for heads in (4, 2, 2)),
            *(np.array([0, 3, 9]), np.array([0, 3, 9]), 6, 6),
        ),
        exact_varlen,
        SMALL_FLOATS,
        keywords=(("softmax_scale", 1.0),),
    ),
    Operator(
        "flash_attn_with_kvcache",
        lambda make: (
            *(make(2, 3, 4, 8) / 4, make(5, 4, 2, 8), make(5, 4, 2, 8)),
            *(np.array([7, 4]), np.array([[3, 1], [2, 0]], "int32")),
        ),
        exact_sequences,
        SMALL_FLOATS,
        keywords=(("softmax_scale", 1.0),),
    ),
    Operator("fused_add_rms_norm", added, exact_added_norm, SMALL_FLOATS, in_place=(0, 1)),
    Operator("gelu_and_mul", halves, lambda x: gated_halves(x, exact_gelu), SMALL_FLOATS),
    Operator("gelu_tanh_and_mul", halves, lambda x: gated_halves(x, exact_gelu_tanh), SMALL_FLOATS),
    Operator(
        "gemm",
        factors,
        lambda a, b: 3 * (a @ b),
        FLOATS + WIDE_INTEGERS,
        (("alpha", 3), ("beta", 0)),
    ),
    Operator(
        "grouped_gemm",
        lambda make: (
            *(make(3, 33), make(2, 20, 33)),
            *(np.array([1, 2, 0, 3, 4, 5]), np.array([1, 0]), np.array([6]), 3, 2),
        ),
        lambda a, b, *_: np.stack([a[i // 2] @ b[1 if i < 3 else 0].T for i in range(6)]),
        SMALL_FLOATS,
    ),
    Operator(
        "grouped_topk",
        lambda make: (make(5, 32), 4, 2, 3, False, 2.0, np.zeros(32, "float32")),
        exact_grouped_topk,
        SMALL_FLOATS,
        outs=("topk_values", "topk_indices"),
        out_dtypes=("float32", "int32"),
    ),
    Operator(
        "linear",
        lambda make: (make(4, 33), make(20, 33), make(20)),
        exact_linear,
        FLOATS + WIDE_INTEGERS,
    ),
    Operator("matmul", factors, np.matmul, FLOATS + WIDE_INTEGERS),
    Operator(
        "moe_align_block_size",
        lambda _: (np.array([[0, 3], [3, 1], [-1, 3], [1, 3], [0, 0]]), 4, 2),
        exact_blocks,
        ("int32", "int64"),
        outs=("sorted_token_ids", "experts_ids", "num_tokens_post_pad"),
    ),
    Operator("moe_sum", lambda make: (make(5, 3, 33),), lambda x: x.sum(1), SMALL_FLOATS),
    Operator("mul", matrices, np.multiply, FLOATS + INTEGERS),
    Operator(
        "reshape_and_cache",
        lambda make: tokens(make, (3, 2, 3, 4, 4), (3, 2, 12, 4)),
        exact_caches,
        ANY,
        in_place=(3, 4),
    ),
    Operator(
        "reshape_and_cache_flash",
        lambda make: tokens(make, (3, 4, 2, 12), (3, 4, 2, 12)),
        exact_caches,
        ANY,
        in_place=(3, 4),
    ),
    Operator(
        "rms_norm",
        lambda make: (make(5, 33), make(33)),
        lambda x, weight: exact_rms_norm(x, weight, 0.25),
        keywords=(("eps", 0.25),),
    ),
    Operator("rotary_embedding", rotated, exact_rotary_embedding, SMALL_FLOATS, in_place=(1, 2)),
    Operator("silu_and_mul", halves, lambda x: gated_halves(x, exact_silu), SMALL_FLOATS),
    Operator("scaled_softmax", lambda make: (make(5, 33), 0.25), exact_scaled_softmax),
    Operator(
        "scaled_dot_product_attention",
        lambda make: (make(20, 33) / 16, make(40, 33), make(40, 17)),
        exact_attention,
        SMALL_FLOATS,
        keywords=(("scale", 1.0),),
    ),
    Operator("swiglu", matrices, lambda x, gate: x * exact_silu(gate)),
    Operator(
        "top_k_top_p_sampling_from_logits",
        lambda make: (make(5, 33), 1, 0.5, 0),
        lambda x, *_: x.argmax(-1),
        SMALL_FLOATS,
        out_dtypes=("int64",),
    ),
    *(
        Operator(
            name,
            matrix,
            partial(exact_topk, function=function),
            SMALL_FLOATS,
            outs=("topk_weights", "topk_indices", "token_expert_indices"),
            out_dtypes=("float32", "int32", "int64"),
        )
        for name, function in (("topk_sigmoid", exact_sigmoid), ("topk_softmax", exact_softmax))
    ),
)


def contiguous(values: Array) -> Array:
    return values.copy()


def transposed(values: Array) -> Array:
    return np.asfortranarray(values)


def sliced(values: Array) -> Array:
    """Every other element, at an odd address, in memory that belongs to the array's base."""
    memory = np.full([2 * size + 3 for size in values.shape], GARBAGE).astype(values.dtype)
    view = memory[tuple(slice(1, 2 * size + 1, 2) for size in values.shape)]
    view[...] = values
    return view


LAYOUTS = (contiguous, transposed, sliced)


def cases() -> Iterator[Any]:
    for operator in OPERATORS:
        for dtype in operator.dtypes:
            yield pytest.param(operator, dtype, id=f"{operator.name}-{dtype}")


def maker(dtype: str) -> Make:
    random = np.random.default_rng(0)

    def make(*shape: int) -> Array:
        low = 0 if dtype in ("bool", *UNSIGNED) else -FACTOR
        high = 1 if dtype == "bool" else FACTOR
        if np.dtype(dtype).kind == "f":
            return random.uniform(low, high, shape).astype(dtype)
        return random.integers(low, high, shape, endpoint=True).astype(dtype)

    return make


def wide(values: Any) -> Any:
    if not isinstance(values, np.ndarray):
        return values
    return values.astype("float64" if values.dtype.kind == "f" else "int64")


def outside(view: Array) -> Array:
    """Return the memory around the elements of a view, with zeros for these."""
    memory = view if view.base is None else view.base.copy()
    if memory is view:
        return np.zeros(0)
    memory[tuple(slice(1, 2 * size + 1, 2) for size in view.shape)] = 0
    return memory


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: str(layout.__name__))
@pytest.mark.parametrize(("operator", "dtype"), list(cases()))
def test_result(operator: Operator, dtype: str, layout: Callable[[Array], Array]) -> None:
    inputs = [
        layout(values) if isinstance(values, np.ndarray) else values
        for values in operator.operands(maker(dtype))
    ]
    with np.errstate(all="ignore"):
        exact = operator.exact(*map(wide, inputs))
    every = exact if isinstance(exact, tuple) else (exact,)
    dtypes = operator.out_dtypes or (dtype,) * len(every)
    results = [each.astype(own) for each, own in zip(every, dtypes, strict=True)]
    outs = [inputs[place] for place in operator.in_place] or [
        layout(np.full(each.shape, GARBAGE).astype(each.dtype)) for each in results
    ]
    before = [outside(out) for out in outs] if layout is sliced else []
    arguments = [inputs] if operator.as_list else inputs
    keywords = {} if operator.in_place else dict(zip(operator.outs, outs, strict=True))
    getattr(infini.ops, operator.name)(*arguments, **dict(operator.keywords), **keywords)
    ran = infini.ops.last_call()
    assert ran is not None
    assert (ran.operator, ran.device, ran.slot) == (operator.name, "cpu", 0)
    for out, expected in zip(outs, results, strict=True):
        check(out, expected)
    for out, memory in zip(outs, before, strict=False):
        np.testing.assert_array_equal(outside(out), memory)


def check(out: Array, expected: Array) -> None:
    if expected.dtype.kind == "f":
        # The result is rounded once; sums are of 33 terms, computed in float32 at least.
        own = np.finfo(expected.dtype).eps
        computed = np.finfo("float64" if expected.dtype == "float64" else "float32").eps
        atol = 3 * FACTOR**2 * 33 * computed
        np.testing.assert_allclose(out, expected, rtol=max(2 * own, 128 * computed), atol=atol)
    else:
        np.testing.assert_array_equal(out, expected)


def test_every_native_operator_is_tested() -> None:
    content = json.loads(infini.ops.native_metadata_path().read_text())
    tested = {each.name for each in OPERATORS} | QUANTIZED
    assert {entry["name"] for entry in content["ops"]} == tested


@pytest.mark.parametrize("target", ANY)
@pytest.mark.parametrize("dtype", ANY)
def test_every_dtype_is_cast_to_every_other(dtype: str, target: str) -> None:
    x = np.arange(9).astype(dtype)
    out = np.full(9, GARBAGE).astype(target)
    infini.ops.cast(x, out)
    np.testing.assert_array_equal(out, x.astype(target))


def test_large_products_on_several_threads() -> None:
    make = maker("float32")
    a, b, out = make(257, 300), make(300, 259), np.zeros((257, 259), "float32")
    infini.ops.matmul(a, b, out)
    np.testing.assert_allclose(out, wide(a) @ wide(b), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("layout", LAYOUTS[:2], ids=lambda layout: str(layout.__name__))
@pytest.mark.parametrize("rows", [1, 5, 67])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_products_of_empty_rows_are_zero(
    dtype: str, rows: int, layout: Callable[[Array], Array]
) -> None:
    a, b = layout(np.zeros((rows, 0), dtype)), layout(np.zeros((0, 70), dtype))
    out = np.full((rows, 70), GARBAGE, dtype)
    infini.ops.matmul(a, b, out)
    np.testing.assert_array_equal(out, np.zeros((rows, 70), dtype))


def test_a_concatenation_of_many_rows() -> None:
    parts = [np.arange(100 * size, dtype="int16").reshape(100, size) for size in (3, 1, 2)]
    out = np.full((100, 6), GARBAGE, "int16")
    infini.ops.cat(parts, 1, out)
    np.testing.assert_array_equal(out, np.concatenate(parts, 1))


def test_calls_of_several_threads() -> None:
    def double_often(number: int) -> Array:
        x, out = np.full((64, 64), number, "float32"), np.zeros((64, 64), "float32")
        for _ in range(200):
            infini.ops.add(x, x, out)
        return out

    with ThreadPoolExecutor(4) as pool:
        for number, result in enumerate(pool.map(double_often, range(8))):
            np.testing.assert_array_equal(result, 2 * number)


def test_arrays_do_not_outlive_their_caller() -> None:
    x, out = np.ones(8, "float32"), np.zeros(8, "float32")
    references = weakref.ref(x), weakref.ref(out)
    for _ in range(3):
        infini.ops.add(x, x, out)
    del x, out
    assert [reference() for reference in references] == [None, None]


def ones(*shape: int) -> Array:
    return np.ones(shape, "float32")


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (5, ValueError, "implementation_index 5.*active: 0"),
        (-1, ValueError, "implementation_index -1"),
        (2**31, OverflowError, "too large to convert to C int"),
        (-(2**31) - 1, OverflowError, "too large to convert to C int"),
        (2**63, OverflowError, "too large to convert to C"),
        (-(2**63) - 1, OverflowError, "too large to convert to C"),
        (True, TypeError, "implementation_index: expected an int or None"),
        (0.0, TypeError, "implementation_index: expected an int or None"),
    ],
)
def test_an_implementation_index_that_is_not_a_slot(
    index: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        infini.ops.add(ones(2), ones(2), ones(2), implementation_index=index)


@pytest.mark.parametrize("index", [None, 0, np.int64(0)])
def test_implementation_index(index: object) -> None:
    out = ones(2)
    infini.ops.add(ones(2), ones(2), out, implementation_index=index, stream=0)
    assert out.tolist() == [2, 2]


def read_only() -> Array:
    out = ones(3, 4)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((ones(3, 4), ones(3, 5), ones(3, 4)), ValueError, "add: slot 0 takes .+; got .+"),
        ((ones(3, 4), ones(3, 4), ones(3, 5)), ValueError, "add: slot 0 takes .+; got .+"),
        ((ones(3, 4), ones(3, 4).astype("complex64"), ones(3, 4)), ValueError, "slot 0 takes"),
        ((ones(3, 4), ones(3, 4), read_only()), TypeError, r"no overload takes \(numpy.ndarray,"),
        ((ones(3, 4), ones(3, 4).astype("O"), ones(3, 4)), TypeError, "not taken:\n  numpy"),
        ((ones(3, 4), "text", ones(3, 4)), TypeError, r"candidates:\n  add\(Tensor input"),
        ((), TypeError, r"no overload takes \(implementation_index=int\)"),
    ],
    ids=["shape", "out", "dtype", "read-only", "objects", "text", "nothing"],
)
def test_refused_calls(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        infini.ops.add(*arguments, implementation_index=0)  # the torch slot accepts some of them


def test_an_error_of_the_exporting_object_is_raised_unchanged() -> None:
    class Broken:
        def __dlpack__(self, **_: object) -> object:
            raise RuntimeError("no array today")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(RuntimeError, match="no array today"):
        infini.ops.add(Broken(), ones(2), ones(2))


def test_operators_are_python_objects_like_others() -> None:
    assert copy.deepcopy(infini.ops.add) is infini.ops.add
    assert pickle.loads(pickle.dumps(infini.ops.add)) is infini.ops.add  # noqa: S301 - our own
    assert repr(infini.ops.add) == "<operator infini.ops.add>"
    assert infini.ops.add.__name__ == infini.ops.add.__qualname__ == "add"
    assert infini.ops.Add.active_implementation_indices("cpu")[0] == 0
    assert "add" in dir(infini.ops)
    with pytest.raises(TypeError, match="cannot create"):
        type(infini.ops.add)()


def test_help_has_the_signatures_and_slots() -> None:
    text = pydoc.plain(pydoc.render_doc(infini.ops.add))
    assert "add(Tensor input, Tensor other, Scalar alpha=1, Tensor out)" in text
    assert "Active slots on cpu: 0" in text
    assert "The operator ``infini.ops.add``" in pydoc.plain(pydoc.render_doc(infini.ops.Add))
