"""Operators of flash-attention: the shared part of their ``build.py``.

The kernel is that of flash_attn_varlen_func. Pages, windows, softcap, slopes and logarithms change
little beside the products, and are no variants. For each type there are variants for columns
without gaps, one for any strides, and one for more than 128 columns. The first one has small tiles
for few queries, which float32 always has. Tiles are starting values from public practice, not
measured. They fit into 99 KiB of shared memory, because sm_86 and sm_89 have no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from codegen.triton.spec import TRITON_TYPES, FieldKind, Operator, Variant

TENSORS = ("out", "query", "key", "value")
FLOATS = ("slopes", "lse")
INDICES = ("query_ends", "key_ends", "key_counts", "pages")
SIZES = (
    *("most_queries", "query_rows", "key_rows", "heads", "key_heads", "key_size", "value_size"),
    *("page_size", "page_count", "left", "right"),
    *(f"{name}_size" for name in INDICES),
    *("has_slopes", "has_lse"),
)
STRIDES = (
    *(f"{name}_{step}" for name in TENSORS[:2] for step in ("sequence", "head", "row", "column")),
    *(
        f"{name}_{step}"
        for name in TENSORS[2:]
        for step in ("sequence", "head", "page", "row", "column")
    ),
    *("slopes_sequence", "slopes_head", "lse_sequence", "lse_head", "lse_row"),
    *(f"{name}_stride" for name in INDICES),
    "pages_sequence",
)
TYPES = {
    **dict.fromkeys(FLOATS, "*fp32"),
    **dict.fromkeys(INDICES, "*i32"),
    **dict.fromkeys(SIZES, "i32"),
    **dict.fromkeys(("scale", "softcap"), "fp32"),
    **dict.fromkeys(("key_limit", *STRIDES), "i64"),
}
FIELDS = {
    "data_type": FieldKind.DATA_TYPE,
    **dict.fromkeys((*TENSORS, *FLOATS, *INDICES), FieldKind.POINTER),
    **dict.fromkeys((*SIZES, "key_limit", *STRIDES, "sequences"), FieldKind.INTEGER),
    **dict.fromkeys(("scale", "softcap"), FieldKind.FLOAT),
}
WITHOUT_GAPS = dict.fromkeys((f"{name}_column" for name in TENSORS), 1)
ALIGNED = (
    *TENSORS,
    *("key_size", "value_size"),
    *(
        stride
        for stride in STRIDES
        if stride.startswith(TENSORS)
        and stride not in WITHOUT_GAPS
        and not stride.startswith(INDICES)
    ),
)
# Rows and keys of a program. Small tiles keep code small where all elements of a tile are addressed
# one by one, and where products are unrolled.
LARGE, FEW, SMALL = (64, 64), (16, 64), (16, 32)


def flash_operator() -> Operator:
    """Define attention of sequences."""
    return Operator(
        fields=FIELDS,
        variants=lambda target: [  # noqa: ARG005 - the same for all
            variant
            for data_type in ("kFloat16", "kBFloat16", "kFloat32")
            for variant in _of_type(data_type)
        ],
        kernels_of="flash_attn_varlen_func",
    )


def _of_type(data_type: str) -> Iterator[Variant]:
    pointers = dict.fromkeys(TENSORS, f"*{TRITON_TYPES[data_type]}")

    def make(
        name: str,
        tile: tuple[int, int],
        *when: str,
        size: int = 128,
        without_gaps: Mapping[str, int] | None = None,
    ) -> Variant:
        constants = without_gaps or {}
        rows, keys = tile
        return Variant(
            name=f"{data_type.removeprefix('k').lower()}_{name}",
            kernel="flash_attention",
            types={k: v for k, v in {**pointers, **TYPES}.items() if k not in constants},
            constants={**constants, "ROWS": rows, "KEYS": keys, "SIZE": size},
            data_types={"data_type": [data_type]},
            divisible=ALIGNED if constants else (),
            when=("max(key_size, value_size) <= SIZE", *when),
            grid=("cdiv(most_queries * heads, ROWS) * key_heads * sequences",),
            num_stages=2 if constants else 1,
        )

    if data_type == "kFloat32":
        yield make("aligned", SMALL, without_gaps=WITHOUT_GAPS)
    else:
        few = "most_queries * heads <= ROWS"
        yield make("aligned_few", FEW, few, without_gaps=WITHOUT_GAPS)
        yield make("aligned", LARGE, without_gaps=WITHOUT_GAPS)
    yield make("strided", SMALL)
    yield make("wide", SMALL, size=256)
