"""The generated code, from the schemas of the installed torch."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from codegen.emit import METADATA_NAME, render_headers, render_torch
from codegen.model import Schemas
from codegen.slots import measured_orders
from codegen.translate import make_library

GOLDEN = Path(__file__).parent / "golden" / "library"
GOLDEN_TORCH = "2.13.0"
# One of each shape, with what it shows.
GOLDEN_NAMES = (
    "_foreach_add",  # lists of tensors and of numbers, written lists
    "_nested_tensor_from_tensor_list",  # data type, layout, device, an optional boolean
    "_softmax",  # an internal name
    "abs",
    "abs_",
    "add",  # a hand-written base
    "bmm",  # a data type that must be given
    "cat",
    "clamp",  # optional numbers or optional tensors
    "clone",  # a memory format
    "fft_fft2",  # a default list, an optional string
    "gelu_",  # a default string, in place
    "index_put_",  # a list of optional tensors
    "linear_backward",  # booleans, three outs
    "mean",
    "normal",  # a generator, overloads that C++ distinguishes by their omitted inputs
    "random_",  # a parameter called as a Python keyword
    "topk",
    "upsample_nearest2d",  # optional lists of integers and of floats
)
UPDATE = "INFINI_OPS_UPDATE_GOLDEN"


def only(schemas: Schemas, *names: str) -> Schemas:
    """A torch that has nothing but these operators."""
    return dataclasses.replace(schemas, by_name={name: schemas.by_name[name] for name in names})


def test_golden_files(schemas: Schemas) -> None:
    """The generated text, to be read in review.

    After a wanted change: ``INFINI_OPS_UPDATE_GOLDEN=1 pytest tests/codegen``.
    """
    if not schemas.torch_version.startswith(GOLDEN_TORCH):
        pytest.skip(f"golden files are of torch {GOLDEN_TORCH}, not {schemas.torch_version}")
    library = make_library(only(schemas, *GOLDEN_NAMES))
    files = render_torch(library, hand_written=frozenset({"add"}))
    files = {name: text.replace(schemas.torch_version, "TORCH") for name, text in files.items()}
    if os.environ.get(UPDATE):
        for name, text in files.items():
            (GOLDEN / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / name).write_text(text)
    recorded = {
        str(path.relative_to(GOLDEN)): path.read_text()
        for path in GOLDEN.rglob("*")
        if path.is_file()
    }
    assert files == recorded


def test_a_hand_written_base_shadows_the_generated_one(schemas: Schemas) -> None:
    library = make_library(only(schemas, "abs", "add"))
    files = render_torch(library, hand_written=frozenset({"add"}))
    assert "base/abs.h" in files
    assert "base/add.h" not in files
    assert "add_out" in files["torch/kernels.cc"]  # slot 8 stays


def test_metadata_describes_the_call(schemas: Schemas) -> None:
    library = make_library(only(schemas, "index_put_", "mean", "topk"))
    metadata = json.loads(render_torch(library, frozenset())[METADATA_NAME])
    assert metadata["schema_version"] == 1
    assert metadata["torch_version"] == schemas.torch_version
    by_name = {(op["aten_name"], op["overload_name"]): op for op in metadata["ops"]}
    topk = by_name["topk", "values"]
    assert [parameter["name"] for parameter in topk["params"]] == [
        *("input", "k", "dim", "largest", "sorted", "values", "indices")
    ]
    assert topk["params"][2] == {
        "name": "dim",
        "type": "int",
        "is_tensor": False,
        "is_out": False,
        "default": "-1",
    }
    assert [p["name"] for p in topk["params"] if p["is_out"]] == ["values", "indices"]
    put = by_name["index_put_", ""]
    assert put["name"] == "index_put_inplace"
    assert put["params"][0]["name"] == "input"
    assert put["params"][0]["is_out"]


def test_skipped_overloads_are_listed_with_their_reason(schemas: Schemas) -> None:
    library = make_library(only(schemas, "set_"))
    metadata = json.loads(render_torch(library, frozenset())[METADATA_NAME])
    reasons = {skip["overload_name"]: skip["reason"] for skip in metadata["skipped"]}
    assert reasons["source_Storage"] == "takes a storage"


def test_the_committed_headers_are_up_to_date(root: Path) -> None:
    for name, text in render_headers().items():
        committed = (root / "src" / "include" / "infini" / "ops" / name).read_text()
        assert committed == text, "run `python -m codegen headers`"


def test_slots_are_ordered_by_their_times_over_all_cases() -> None:
    def case(operator: str, **microseconds: float) -> dict[str, object]:
        return {"operator": operator, "microseconds": microseconds}

    times = {
        "platform": "nvidia",
        "cases": [
            # Slot 9 takes half of the time once, and 1.5 times as long once.
            case("mul", **{"0": 10, "9": 5}),
            case("mul", **{"0": 2000, "9": 3000}),
            case("add", **{"0": 5, "9": 6, "8": 4}),
        ],
    }
    orders = [(order.operator, order.enumerator, order.slots) for order in measured_orders(times)]
    assert orders == [("add", "kNvidia", (8, 0, 9)), ("mul", "kNvidia", (9, 0))]
