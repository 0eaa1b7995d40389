"""The variants of topk_softmax.

A row of scores is a few hundred bytes, and a program keeps it in registers. Alignment, gaps and the
types of the indices change only a few loads and stores, and are no variants. Rows per block are
starting values, not measured.
"""

from codegen.triton.spec import TRITON_TYPES, FieldKind, Operator, Variant

TENSORS = ("gating_output", "bias", "weights", "indices", "numbers")
SIZES = ("tokens", "experts", "chosen")
FLAGS = ("renormalize", "has_bias", "indices_size", "numbers_size")
STRIDES = (
    *("gating_token", "gating_expert", "bias_expert", "weights_token", "weights_choice"),
    *("indices_token", "indices_choice", "numbers_token", "numbers_choice"),
)
TYPES = {**dict.fromkeys((*SIZES, *FLAGS), "i32"), **dict.fromkeys(STRIDES, "i64")}
FIELDS = {
    "data_type": FieldKind.DATA_TYPE,
    **dict.fromkeys(TENSORS, FieldKind.POINTER),
    **dict.fromkeys(TYPES, FieldKind.INTEGER),
}
POINTERS = {"bias": "*fp32", "weights": "*fp32", "indices": "*i32", "numbers": "*i32"}
BLOCKS = {16: 32, 128: 8, 1024: 1}  # experts -> tokens of a program
CHOICES = 32


def variants(target: int) -> list[Variant]:  # noqa: ARG001 - the same for all
    return [
        Variant(
            name=f"{data_type.removeprefix('k').lower()}_experts{block}",
            kernel="topk_softmax",
            types={"gating_output": f"*{TRITON_TYPES[data_type]}", **POINTERS, **TYPES},
            constants={"BLOCK": block, "ROWS": rows, "CHOICES": CHOICES},
            data_types={"data_type": [data_type]},
            when=("experts <= BLOCK",),
            grid=("cdiv(tokens, ROWS)",),
        )
        for data_type in ("kFloat16", "kBFloat16", "kFloat32")
        for block, rows in BLOCKS.items()
    ]


OPERATOR = Operator(fields=FIELDS, variants=variants)
