"""Operators that copy tokens into the slots of a cache: the shared part of their ``build.py``.

The kernel is that of reshape_and_cache. The glue code launches it once for each of the two caches.
Values are copied, so that types of one size share a variant. Types of slots differ in one load only
and are no variants. Block sizes are starting values, not measured.
"""

from __future__ import annotations

from codegen.triton.spec import FieldKind, Operator, Variant

POINTERS = ("tokens", "cache", "slots")
SIZES = ("count", "size0", "size1", "slots_size", "block_size", "slot_count")
STRIDES = (
    *("slots_stride", "tokens_token", "tokens_stride0", "tokens_stride1", "tokens_stride2"),
    *("cache_block", "cache_slot", "cache_stride0", "cache_stride1", "cache_stride2"),
)
TYPES = {**dict.fromkeys(SIZES, "i32"), **dict.fromkeys(STRIDES, "i64")}
FIELDS = {
    "data_type": FieldKind.DATA_TYPE,
    **dict.fromkeys(POINTERS, FieldKind.POINTER),
    **dict.fromkeys((*SIZES, *STRIDES, "token_count"), FieldKind.INTEGER),
}
ALIGNED = ("tokens", "cache", "count", "tokens_token", "cache_block", "cache_slot")
# Bits of an element -> the types.
DATA_TYPES = {
    8: ("kUInt8", "kInt8", "kBool"),
    16: ("kFloat16", "kBFloat16", "kInt16"),
    32: ("kFloat32", "kInt32"),
}


def cache_operator(*, has_rows: bool) -> Operator:
    """Define the copies of `key` and `value` into their caches.

    ``has_rows``: the elements of a slot can be without gaps.
    """
    kinds = (True, False) if has_rows else (False,)
    return Operator(
        fields=FIELDS,
        variants=lambda target: [  # noqa: ARG005 - the same for all
            _variant(bits, is_row=is_row) for bits in DATA_TYPES for is_row in kinds
        ],
        kernels_of="reshape_and_cache",
    )


def _variant(bits: int, *, is_row: bool) -> Variant:
    element = f"*i{bits}"
    return Variant(
        name=f"bits{bits}_" + ("aligned_row" if is_row else "elements"),
        kernel="copy_tokens",
        types={"tokens": element, "cache": element, "slots": "*i32", **TYPES},
        # One element per thread unless it can be a part of a vector, as in add.
        constants={"BLOCK": 1024 if is_row else 256, "ONE_ROW": is_row},
        data_types={"data_type": DATA_TYPES[bits]},
        divisible=ALIGNED if is_row else (),
        when=("size0 == count", "tokens_stride0 == 1", "cache_stride0 == 1") if is_row else (),
        grid=("cdiv(count, BLOCK) * token_count",),
        num_warps=4 if is_row else 8,
    )
