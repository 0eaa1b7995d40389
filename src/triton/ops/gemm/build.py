"""The variants of gemm.

For a column-major out, the glue code swaps the operands, so that the fast variants always have a
row-major out. It gives dimensions of one element stride 0, so that they never count as misaligned.

Tiles, warps and stages are starting values from public practice (Triton's tutorials on matrix
multiplication, for A100 and H100), not measured. A tile of sm_80 and its stages fit into 99 KiB of
shared memory, because sm_86 and sm_89 have no more and run the same code.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from codegen.triton.spec import TRITON_TYPES, FieldKind, Operator, Variant

TENSORS = ("a", "b", "out")
STRIDES = tuple(
    f"{name}_{part}" for name in TENSORS for part in ("outer", "inner", "row", "column")
)
TYPES = {
    **dict.fromkeys(("m", "n", "k", "inner_batches"), "i32"),
    **dict.fromkeys(("alpha", "beta"), "fp32"),
    **dict.fromkeys(STRIDES, "i64"),
}
FIELDS = {
    "data_type": FieldKind.DATA_TYPE,
    **dict.fromkeys(TENSORS, FieldKind.POINTER),
    **dict.fromkeys(("m", "n", "k", "batches", "inner_batches"), FieldKind.INTEGER),
    **dict.fromkeys(("alpha", "beta"), FieldKind.FLOAT),
    **dict.fromkeys(STRIDES, FieldKind.INTEGER),
}
# Layout of a matrix -> the stride that is 1; a column-major matrix is a transposed row-major one.
LAYOUTS = {"n": "column", "t": "row"}


@dataclass(frozen=True, kw_only=True)
class Tile:
    """The part of `out` that a program computes, and its launch parameters."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


# Sizes, in the order in which the dispatcher tries them.
WHEN = {
    # Few rows, as in text generation: `b` is read once, by as many programs as possible.
    "skinny": ("m <= BLOCK_M",),
    # At least about one tile for each multiprocessor of an A100 (108) or H100 (132).
    "large": ("cdiv(m, BLOCK_M) * cdiv(n, BLOCK_N) * batches >= 100",),
    "small": (),
}
SINGLE = {
    "skinny": Tile(m=16, n=32, k=64, warps=4, stages=3),
    "large": Tile(m=128, n=128, k=16, warps=8, stages=3),
    "small": Tile(m=64, n=64, k=16, warps=4, stages=3),
}
HALF = {
    80: {
        "skinny": Tile(m=16, n=32, k=128, warps=4, stages=4),
        "large": Tile(m=128, n=128, k=32, warps=4, stages=4),
        "small": Tile(m=64, n=64, k=32, warps=4, stages=4),
    },
    90: {
        "skinny": Tile(m=16, n=32, k=128, warps=4, stages=4),
        "large": Tile(m=128, n=256, k=64, warps=8, stages=3),
        "small": Tile(m=64, n=64, k=64, warps=4, stages=4),
    },
}
STRIDED = Tile(m=64, n=64, k=32, warps=4, stages=3)


def variants(target: int) -> list[Variant]:
    half = HALF[max(known for known in HALF if known <= target)]
    tables = {"kFloat16": half, "kBFloat16": half, "kFloat32": SINGLE}
    return [variant for name, tiles in tables.items() for variant in of_type(name, tiles)]


def of_type(data_type: str, tiles: Mapping[str, Tile]) -> Iterator[Variant]:
    """Yield the variants for aligned matrices without gaps, then the one for any strides."""
    for size, tile in tiles.items():
        for a, b in product(LAYOUTS, LAYOUTS):
            # A tile of 16 rows has too few aligned columns.
            if size != "skinny" or a == "n":
                yield aligned(data_type, size, tile, a, b)
    yield make(data_type, "strided", STRIDED, {"ALIGNED": False})


def aligned(data_type: str, size: str, tile: Tile, a: str, b: str) -> Variant:
    units = {f"a_{LAYOUTS[a]}": 1, f"b_{LAYOUTS[b]}": 1, "out_column": 1}
    strides = [name for name in STRIDES if name not in units]
    sizes = ["n", "k"] if a == "n" else ["m", "n", "k"]
    constants = {**units, "ALIGNED": True}
    return make(
        data_type, f"{size}_{a}{b}", tile, constants, (*TENSORS, *sizes, *strides), WHEN[size]
    )


def make(
    data_type: str,
    name: str,
    tile: Tile,
    constants: Mapping[str, int],
    divisible: Sequence[str] = (),
    when: Sequence[str] = (),
) -> Variant:
    pointers = dict.fromkeys(TENSORS, f"*{TRITON_TYPES[data_type]}")
    blocks = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k, "GROUP": 8}
    return Variant(
        name=f"{data_type.removeprefix('k').lower()}_{name}",
        kernel="gemm",
        types={k: v for k, v in {**pointers, **TYPES}.items() if k not in constants},
        constants={**constants, **blocks},
        data_types={"data_type": [data_type]},
        divisible=divisible,
        when=when,
        grid=("cdiv(m, BLOCK_M) * cdiv(n, BLOCK_N) * batches",),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


OPERATOR = Operator(fields=FIELDS, variants=variants)
