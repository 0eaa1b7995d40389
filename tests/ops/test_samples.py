"""The recorded samples: the content of the file, other torches, overloads without samples."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dispatcher import has_kernel
from harness import equal
from installed import all_overloads, overloads
from reasons import SkipReason
from samples import (
    FORMAT_VERSION,
    SAMPLES_FILE,
    Sample,
    SampleSet,
    UnboundArgumentError,
    aten_overload,
    load,
    save,
)
from samples.absent import REVIEWED, why_absent
from samples.dtypes import primary_dtype, with_dtype
from samples.layouts import dense_parts, kind_of, put_together, take_apart
from samples.values import (
    BlankValue,
    CompositeValue,
    DeviceValue,
    NamedValue,
    TensorValue,
    Value,
    decode,
    encode,
    leaves,
    materialize,
)

import torch

# Torch warns that sparse layouts are in beta and quantized tensors deprecated.
pytestmark = pytest.mark.filterwarnings("ignore")

MATRIX = torch.tensor([[-1.5, 0.0, 2.0], [0.0, 0.0, 3.0]])
VECTOR = TensorValue.of(torch.tensor([-1.0, 2.0, 0.5]))
RECORDED_HERE = load().header["torch_version"] == torch.__version__
only_where_recorded = pytest.mark.skipif(
    not RECORDED_HERE,
    reason=f"{SkipReason.NO_SAMPLE.value}: not recorded with torch {torch.__version__}",
)


def composite(tensor: torch.Tensor) -> CompositeValue:
    parts = tuple(TensorValue.of(part) for part in take_apart(tensor))
    return CompositeValue(kind_of(tensor), tuple(tensor.shape), parts)


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "sparse_coo": MATRIX.to_sparse,
    "sparse_csr": MATRIX.to_sparse_csr,
    "sparse_csc": MATRIX.to_sparse_csc,
    "sparse_bsr": lambda: MATRIX.to_sparse_bsr((1, 3)),
    "sparse_bsc": lambda: MATRIX.to_sparse_bsc((2, 1)),
    "per_tensor_affine": lambda: torch.quantize_per_tensor(MATRIX, 0.5, 4, torch.qint8),
    "per_channel_affine": lambda: torch.quantize_per_channel(
        MATRIX, torch.tensor([0.5, 0.25]), torch.tensor([4, 8]), 0, torch.quint8
    ),
    "_mkldnn": MATRIX.to_mkldnn,
}


class TestValues:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            True,
            3,
            0.5,
            math.inf,
            complex(1, -math.inf),
            "text",
            [[1], [None, 2.0]],
            VECTOR,
            TensorValue.of(MATRIX.t()),
            TensorValue.of(MATRIX[:, ::2]),
            TensorValue.of(torch.zeros(0, 3, dtype=torch.bfloat16)),
            BlankValue("int64", (2, 0)),
            NamedValue("float32"),
            NamedValue("channels_last"),
            DeviceValue(),
            composite(MATRIX.to_sparse()),
        ],
        ids=str,
    )
    def test_a_value_reads_back_as_it_was_written(self, value: Value) -> None:
        tensors: list[TensorValue] = []

        def store(tensor: TensorValue) -> int:
            tensors.append(tensor)
            return len(tensors) - 1

        written = json.dumps(encode(value, store), allow_nan=False)
        assert decode(json.loads(written), tensors) == value

    def test_not_a_number_reads_back(self) -> None:
        assert math.isnan(decode(json.loads(json.dumps(encode(math.nan, id))), []))

    def test_an_unknown_kind_is_refused(self) -> None:
        with pytest.raises(ValueError, match="a value of unknown kind 'colour'"):
            decode({"colour": "red"}, [])
        with pytest.raises(ValueError, match="a tensor of unknown kind 'colour'"):
            put_together("colour", (1,), [MATRIX])

    @pytest.mark.parametrize("tensor", [MATRIX, MATRIX.t(), MATRIX[:, ::2], MATRIX[:0]], ids=str)
    def test_a_strided_tensor_comes_to_life(self, tensor: torch.Tensor) -> None:
        alive = materialize(TensorValue.of(tensor), "cpu")
        assert torch.equal(alive, tensor)
        assert alive.stride() == tensor.stride()

    @pytest.mark.parametrize("kind", LAYOUTS)
    def test_a_tensor_of_another_layout_comes_to_life(self, kind: str) -> None:
        tensor = LAYOUTS[kind]()
        alive = materialize(composite(tensor), "cpu")
        assert kind_of(alive) == kind_of(tensor) == kind
        assert alive.dtype == tensor.dtype
        parts = zip(dense_parts(alive), dense_parts(tensor), strict=True)
        assert all(equal(left, right) for left, right in parts)

    def test_dense_parts_tell_sparse_tensors_of_other_shapes_apart(self) -> None:
        sparse = MATRIX.to_sparse()
        larger = torch.sparse_coo_tensor(sparse.indices(), sparse.values(), (9, 9))
        assert not equal(dense_parts(sparse)[0], dense_parts(larger)[0])

    def test_names_and_the_device_come_to_life(self) -> None:
        assert materialize([NamedValue("int32"), DeviceValue()], "cpu") == [
            torch.int32,
            torch.device("cpu"),
        ]


class TestDtypes:
    @pytest.mark.parametrize(
        ("dtype", "expected"),
        [("float16", [-1.0, 2.0, 0.5]), ("int64", [-4, 8, 2]), ("bool", [False, True, True])],
    )
    def test_different_elements_stay_different(self, dtype: str, expected: list[Any]) -> None:
        converted = VECTOR.with_dtype(dtype).materialize("cpu")
        assert str(converted.dtype) == f"torch.{dtype}"
        assert converted.tolist() == expected

    def test_only_one_dtype_of_a_call_is_converted(self) -> None:
        index = TensorValue.of(torch.tensor([0, 1]))
        call = {"index": index, "self": [VECTOR, None], "dtype": NamedValue("float32")}
        assert primary_dtype(call) == "float32"
        converted = with_dtype(call, "float32", "float64")
        assert primary_dtype(converted) == "float64"
        assert converted["index"] == index
        assert converted["dtype"] == NamedValue("float64")


def schema(arguments: str) -> Any:
    return torch._C.parse_schema(f"aten::abs.out({arguments}, *, Tensor(a!) out) -> Tensor(a!)")


class TestBinding:
    sample = Sample("abs.out", "float32", {"self": VECTOR, "out": BlankValue("float32", (3,))})

    def test_an_argument_more_gets_its_default(self) -> None:
        newer = schema("Tensor self, int colour=3")
        assert self.sample.fits(newer)
        bound = self.sample.bind(newer, "cpu")
        assert list(bound) == ["self", "colour", "out"]
        assert bound["colour"] == 3

    def test_an_argument_less_does_not_fit(self) -> None:
        with_colour = Sample("abs.out", "float32", self.sample.arguments | {"colour": 1})
        assert not with_colour.fits(schema("Tensor self"))
        with pytest.raises(UnboundArgumentError, match="has no argument colour"):
            with_colour.bind(schema("Tensor self"), "cpu")

    def test_an_absent_argument_is_not_missed(self) -> None:
        without_mask = Sample("abs.out", "float32", self.sample.arguments | {"mask": None})
        assert without_mask.fits(schema("Tensor self"))
        assert list(without_mask.bind(schema("Tensor self"), "cpu")) == ["self", "out"]

    def test_an_argument_that_was_not_recorded_is_unbound(self) -> None:
        newer = schema("Tensor self, Tensor other")
        assert not self.sample.fits(newer)
        with pytest.raises(UnboundArgumentError, match="needs other, which was not recorded"):
            self.sample.bind(newer, "cpu")

    @pytest.mark.parametrize("name", ["_foreach_addcmul.Tensor_out", "_foreach_addcmul_.Tensor"])
    def test_tensors_that_torch_expects_on_the_cpu_stay_there(self, name: str) -> None:
        schema = aten_overload(name)._schema
        bound = load().samples[name]["float32"][0].bind(schema, "meta")
        assert bound["scalars"].device.type == "cpu"
        assert {tensor.device.type for tensor in bound["self"]} == {"meta"}


class TestFile:
    def test_it_reads_back_as_it_was_written(self, tmp_path: Path) -> None:
        arguments = {"tensors": [VECTOR, None, VECTOR], "mask": composite(MATRIX.to_sparse())}
        samples = {"some.out": {"float32": [Sample("some.out", "float32", arguments)]}}
        written = SampleSet(load().header, samples)
        save(written, tmp_path / "samples.zip")
        assert load(tmp_path / "samples.zip") == written

    def test_another_format_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "samples.zip"
        save(SampleSet({"format_version": 99}, {}), path)
        expected = rf"has format 99, expected {FORMAT_VERSION}; record it again: nox -s samples"
        with pytest.raises(ValueError, match=expected):
            load(path)

    def test_equal_recordings_are_equal_files(self, tmp_path: Path) -> None:
        for name in ("one.zip", "other.zip"):
            save(load(), tmp_path / name)
        assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "other.zip").read_bytes()

    def test_it_says_where_it_comes_from(self) -> None:
        header = load().header
        assert header.keys() >= {"torch_version", "recorded", "command", "dtypes"}
        assert header["command"] == "nox -s samples"

    def test_it_is_small(self) -> None:
        assert SAMPLES_FILE.stat().st_size <= 1_000_000

    def test_nothing_in_it_is_stored_twice(self) -> None:
        with zipfile.ZipFile(SAMPLES_FILE) as archive:
            rows = archive.read("tensors.json").decode()
        assert len({json.dumps(row) for row in json.loads(rows)}) == len(json.loads(rows))

    @pytest.mark.full_suite
    def test_reading_it_needs_nothing_but_torch(self) -> None:
        program = (
            "import sys\n"
            "sys.modules['torch.testing._internal.common_utils'] = None\n"
            "sys.modules['expecttest'] = None\n"
            "import samples\n"
            "assert samples.load().samples\n"
            "assert 'samples.recorder' not in sys.modules\n"
        )
        folder = SAMPLES_FILE.parents[1]
        subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=folder, check=True)


def every_sample() -> Iterator[tuple[Any, Sample]]:
    for overload in overloads():
        for group in load().samples.get(overload.qualified_name, {}).values():
            for sample in group:
                yield overload.aten(), sample


def test_every_sample_fits_this_torch_or_says_why_not(
    record_property: Callable[[str, object], None],
) -> None:
    unfit = 0
    for aten, sample in every_sample():
        if aten is not None and not sample.fits(aten._schema):
            unfit += 1
            with pytest.raises(UnboundArgumentError, match=r"has no argument|was not recorded"):
                sample.bind(aten._schema, "cpu")
    record_property("unfit", unfit)
    assert unfit == 0 or not RECORDED_HERE


@only_where_recorded
def test_no_sample_names_an_argument_at_its_default() -> None:
    """Another torch may lack the argument."""
    for aten, sample in every_sample():
        for argument in aten._schema.arguments:
            if argument.has_default_value() and argument.name in sample.arguments:
                value, default = sample.arguments[argument.name], argument.default_value
                assert type(value) is not type(default) or value != default, sample


@only_where_recorded
def test_every_output_is_named() -> None:
    for aten, sample in every_sample():
        outputs = {argument.name for argument in aten._schema.arguments if argument.is_out}
        assert outputs <= sample.arguments.keys()
        assert all(leaf is not None for name in outputs for leaf in leaves(sample.arguments[name]))


class TestAbsent:
    @only_where_recorded
    def test_every_overload_without_a_sample_has_a_reason(self) -> None:
        explained = load().samples.keys() | REVIEWED.keys()
        unexplained = [
            overload.qualified_name
            for overload in overloads()
            if overload.qualified_name not in explained and has_kernel(overload.aten(), "cpu")
        ]
        assert not unexplained, "record them, or review them in samples/absent.py"

    @only_where_recorded
    def test_no_overload_with_a_sample_has_a_reason(self) -> None:
        known = {overload.qualified_name: overload for overload in all_overloads()}
        assert REVIEWED.keys() <= known.keys()
        assert not REVIEWED.keys() & load().samples.keys()
        assert all(has_kernel(known[name].aten(), "cpu") for name in REVIEWED)

    @pytest.mark.parametrize(
        ("overload", "reason", "message"),
        [
            (torch.ops.aten.requires_grad_.default, SkipReason.NOTHING_TO_COMPARE, "sets a flag"),
            (torch.ops.aten.miopen_rnn.out, SkipReason.NO_KERNEL, "dispatcher has no miopen"),
            (torch.ops.aten.add.out, SkipReason.NO_SAMPLE, "add.out was not recorded with torch 2"),
        ],
        ids=["reviewed", "unreachable", "new"],
    )
    def test_the_reason_is_specific_to_the_overload(
        self, overload: Any, reason: SkipReason, message: str
    ) -> None:
        found, why = why_absent(overload, "cpu")
        assert found is reason
        assert message in why

    @pytest.mark.parametrize(
        ("overload", "reachable"),
        [
            (torch.ops.aten.add.out, True),
            (torch.ops.aten.abs_.default, True),
            (torch.ops.aten.mm.dtype_out, False),
            (torch.ops.aten.rand_like.out, True),
            (torch.ops.aten.cudnn_convolution.out, False),
            (torch.ops.aten.empty_quantized.out, False),
        ],
        ids=str,
    )
    def test_a_generated_overload_is_where_its_functional_one_is(
        self, overload: Any, reachable: bool
    ) -> None:
        assert has_kernel(overload, "cpu") is reachable
