"""The harness itself: no wrong call passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
from harness import (
    Arguments,
    CallOutcome,
    MismatchError,
    RefusedError,
    UnsteadyError,
    VacuousError,
    check,
    equal,
    invoke,
    poison,
)
from installed import Overload, WrongImplementationError, check_device, check_slot, overloads
from properties import Record
from reasons import SkipReason, classify
from samples import Sample, load
from samples.values import BlankValue, CompositeValue, TensorValue
from spread import Spread
from test_torch_ops import Case, Run, cases_of

import infini.ops
import torch

ABS = torch.ops.aten.abs.out
VECTOR = TensorValue("float32", (3,), (1,), bytes(torch.tensor([-1.0, 2.0, 0.5]).view(torch.uint8)))
ABS_SAMPLE = Sample("abs.out", "float32", {"self": VECTOR, "out": BlankValue("float32", (3,))})


def leave_out(arguments: Arguments) -> None:
    """Does nothing."""


def write_all_but_one(arguments: Arguments) -> None:
    arguments["out"][:-1] = arguments["self"].abs()[:-1]


def change_an_input(arguments: Arguments) -> None:
    invoke(ABS, arguments)
    arguments["self"].neg_()


def move_the_output(arguments: Arguments) -> None:
    arguments["out"].set_(arguments["self"].abs())


def write_past_the_end(arguments: Arguments) -> None:
    invoke(ABS, arguments)
    arguments["out"].as_strided((4,), (1,)).copy_(torch.zeros(4))
    invoke(ABS, arguments)


def write_before_the_beginning(arguments: Arguments) -> None:
    out = arguments["out"]
    out.as_strided((1,), (1,), out.storage_offset() - 1).fill_(1)
    invoke(ABS, arguments)


def change_the_strides(arguments: Arguments) -> None:
    invoke(ABS, arguments)
    out = arguments["out"]
    value = out.clone()
    out.as_strided_((3,), (2,))
    out.copy_(value)


def change_the_dtype(arguments: Arguments) -> None:
    arguments["out"].data = arguments["self"].abs().double()


def change_the_shape(arguments: Arguments) -> None:
    invoke(ABS, arguments)
    arguments["out"].unsqueeze_(0)


class TestCheck:
    def test_the_right_call_passes(self) -> None:
        check(ABS_SAMPLE, ABS, partial(invoke, ABS), "cpu")

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (leave_out, "out: expected"),
            (write_all_but_one, "out: expected"),
            (change_an_input, "self: expected"),
            (move_the_output, "out: its memory moved"),
            (write_past_the_end, "memory beside it was written"),
            (write_before_the_beginning, "memory beside it was written"),
            (change_the_strides, "out: its memory moved or its layout changed"),
            (change_the_dtype, "out: expected torch.float32, got torch.float64"),
            (change_the_shape, "out: expected shape"),
        ],
    )
    def test_a_wrong_call_is_found(self, wrong: Callable[[Arguments], None], message: str) -> None:
        with pytest.raises(MismatchError, match=message):
            check(ABS_SAMPLE, ABS, wrong, "cpu")

    def test_a_sample_that_changes_nothing_is_vacuous(self) -> None:
        positive = TensorValue("float32", (1,), (1,), bytes(torch.ones(1).view(torch.uint8)))
        in_place = torch.ops.aten.abs_.default
        with pytest.raises(VacuousError, match="abs_ changes nothing"):
            check(Sample("abs_", "float32", {"self": positive}), in_place, leave_out, "cpu")

    def test_what_torch_refuses_must_be_refused(self) -> None:
        scalar = Sample("abs.out", "float32", {"self": VECTOR, "out": BlankValue("bool", (3,))})
        with pytest.raises(RefusedError, match="Found dtype Bool"):
            check(scalar, ABS, partial(invoke, ABS), "cpu")
        with pytest.raises(MismatchError, match="torch refuses this call, but the library runs it"):
            check(scalar, ABS, leave_out, "cpu")

    def test_what_torch_refuses_must_be_refused_with_the_same_error(self) -> None:
        def refuse(_: Arguments) -> None:
            raise ValueError("not like this")

        scalar = Sample("abs.out", "float32", {"self": VECTOR, "out": BlankValue("bool", (3,))})
        message = "with RuntimeError, the library with ValueError: not like this"
        with pytest.raises(MismatchError, match=message):
            check(scalar, ABS, refuse, "cpu")

    def test_it_returns_the_device_of_the_outputs(self) -> None:
        outcome = check(ABS_SAMPLE, ABS, partial(invoke, ABS), "cpu")
        assert outcome.ran_device == "cpu"
        assert outcome.arguments["out"].tolist() == [1.0, 2.0, 0.5]

    def test_the_memory_between_the_elements_must_not_be_written(self) -> None:
        every_other = TensorValue("float32", (2,), (2,), VECTOR.data)
        sample = Sample("abs_", "float32", {"self": every_other})
        in_place = torch.ops.aten.abs_.default

        def write_between(arguments: Arguments) -> None:
            invoke(in_place, arguments)
            arguments["self"].as_strided((1,), (1,), 1).zero_()

        check(sample, in_place, partial(invoke, in_place), "cpu")
        with pytest.raises(MismatchError, match="self: memory between its elements was written"):
            check(sample, in_place, write_between, "cpu")

    def test_a_layout_that_the_device_does_not_have_is_refused(self) -> None:
        number = TensorValue("int64", (), (), bytes(8))
        opaque = Sample("abs_", "int64", {"self": CompositeValue("_mkldnn", (), (number,))})
        with pytest.raises(RefusedError, match="mkldnn"):
            check(opaque, torch.ops.aten.abs_.default, leave_out, "cpu")

    def test_random_operators_draw_the_same_numbers(self) -> None:
        uniform = torch.ops.aten.uniform_.default
        sample = Sample("uniform_", "float32", {"self": VECTOR})
        check(sample, uniform, partial(invoke, uniform), "cpu")


@pytest.fixture(scope="module")
def toys() -> Iterator[None]:
    """Operators of torch whose outputs differ from one call to the next."""
    library = torch.library.Library("toys", "DEF")
    rounding = iter(range(10_000))

    def rounds(self: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        noise = torch.tensor([0.0, next(rounding) % 3 * 1e-6, 0.0])
        return out.copy_(self + noise)

    def leaves_the_last(self: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        out[:-1] = self[:-1]
        return out

    def leaves_all(self: torch.Tensor, out: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
        return out

    def counts_no_write(self: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        out.data.copy_(self)
        return out

    for kernel in (rounds, leaves_the_last, leaves_all, counts_no_write):
        library.define(f"{kernel.__name__}(Tensor self, *, Tensor(a!) out) -> Tensor(a!)")
        library.impl(kernel.__name__, kernel, "CPU")
    yield
    library._destroy()


@pytest.mark.usefixtures("toys")
class TestTorchDiffersFromItself:
    """As kernels with atomic additions do, and kernels that leave elements uninitialized."""

    def check(self, name: str, written: list[float], dtype: str = "float32") -> CallOutcome:
        """Checks a call that writes these values."""

        def write(arguments: Arguments) -> None:
            arguments["out"].copy_(torch.tensor(written))

        overload = getattr(torch.ops.toys, name).default
        arguments = {"self": VECTOR.with_dtype(dtype), "out": BlankValue(dtype, (3,))}
        return check(Sample(name, dtype, arguments), overload, write, "cpu")

    @pytest.mark.parametrize("last_bits", [0.0, 1.5e-6, 3e-6])
    def test_a_value_between_torchs_passes(self, last_bits: float) -> None:
        outcome = self.check("rounds", [-1.0, 2.0 + last_bits, 0.5])
        assert set(outcome.spreads) <= {"out: 1 of 3 elements within torch's spread"}

    @pytest.mark.parametrize("wrong", [[-1.0, 2.00001, 0.5], [-1.0, 2.0, 0.50001]])
    def test_a_value_further_away_is_found(self, wrong: list[float]) -> None:
        with pytest.raises(MismatchError, match="out: expected"):
            self.check("rounds", wrong)

    @pytest.mark.parametrize("dtype", ["float32", "int64"])
    def test_an_element_that_torch_leaves_is_not_compared(self, dtype: str) -> None:
        first, second, _ = VECTOR.with_dtype(dtype).materialize("cpu").tolist()
        outcome = self.check("leaves_the_last", [first, second, 77], dtype)
        assert outcome.spreads == ("out: 1 of 3 elements not compared",)
        for wrong in ([first + 1, second, 77], [first, second + 1, 77]):
            with pytest.raises(MismatchError, match="out: expected"):
                self.check("leaves_the_last", wrong, dtype)

    def test_a_sample_whose_elements_torch_leaves_is_not_compared(self) -> None:
        with pytest.raises(UnsteadyError, match="torch leaves out uninitialized"):
            self.check("leaves_all", [1.0, 2.0, 3.0])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
    def test_an_output_without_elements_does_not_differ(self, dtype: torch.dtype) -> None:
        assert Spread([torch.empty(0, dtype=dtype), torch.empty(0, dtype=dtype)]).is_steady

    def test_nothing_is_excused_where_torch_agrees_with_itself(self) -> None:
        with pytest.raises(MismatchError, match="out: expected"):
            check(ABS_SAMPLE, ABS, write_all_but_one, "cpu")


@pytest.mark.usefixtures("toys")
def test_a_write_that_torch_itself_does_not_count_need_not_be_counted() -> None:
    """torch's batch norm of CUDA replaces an out by another tensor, whose version changes."""
    overload = torch.ops.toys.counts_no_write.default
    sample = replace(ABS_SAMPLE, overload="counts_no_write")
    check(sample, overload, partial(invoke, overload), "cpu")
    check(sample, overload, lambda arguments: arguments["out"].copy_(arguments["self"]), "cpu")
    with pytest.raises(MismatchError, match="out: written, but its autograd version is 0"):
        check(ABS_SAMPLE, ABS, lambda given: given["out"].data.copy_(given["self"].abs()), "cpu")


@pytest.mark.operators("abs")
def test_a_call_that_torch_refuses_elsewhere_is_skipped_with_its_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a device whose kernel needs other dtypes; where it was recorded, torch took it."""
    refused = Sample("abs.out", "float32", {"self": VECTOR, "out": BlankValue("bool", (3,))})
    monkeypatch.setattr(torch, "__version__", load().header["torch_version"])
    with pytest.raises(RefusedError, match="Found dtype Bool"):
        Run(case_of("abs.out"), "cpu").execute(refused, by_keyword=False)
    monkeypatch.setattr(torch, "__version__", "1.0.0")
    run = Run(case_of("abs.out"), "cpu")
    run.execute(refused, by_keyword=False)
    ((reason, message),) = run.refusals
    assert reason is SkipReason.TORCH_REFUSES
    assert message.startswith("Found dtype Bool")


@pytest.mark.operators("gelu")
def test_a_call_that_torch_refuses_is_adapted_before_it_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = case_of("gelu.out")
    arguments = {**case.samples[0].arguments, "approximate": "another kernel's"}
    monkeypatch.setattr(torch, "__version__", "1.0.0")
    run = Run(case, "cpu")
    run.execute(Sample("gelu.out", "float32", arguments), by_keyword=False)
    assert (run.executed, run.refusals) == (1, [])
    assert run.adapted == ['approximate: the default instead of "another kernel\'s"']


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16])
def test_poison_differs_in_every_element(dtype: torch.dtype) -> None:
    expected = torch.tensor([0, 1, 1, 0]).to(dtype)
    assert not (poison(expected) == expected).any()
    assert poison(expected).dtype == dtype


def test_poison_differs_from_nan() -> None:
    assert not poison(torch.tensor([float("nan"), 1.0])).isnan()[0]


def test_any_nan_equals_any_other() -> None:
    nan = torch.tensor([float("nan")])
    assert equal(nan, -nan)
    assert not equal(nan, torch.zeros(1))


def test_only_known_refusals_have_a_reason() -> None:
    unsupported = RuntimeError("\"abs\" not implemented for 'Half'")
    assert classify(unsupported) is SkipReason.DTYPE_UNSUPPORTED
    missing = NotImplementedError("Could not run 'aten::abs.out' with arguments from ...")
    assert classify(missing) is SkipReason.NO_KERNEL
    assert classify(RuntimeError("segmentation fault")) is None


def test_every_test_of_an_operator_has_an_id_of_its_own() -> None:
    """One id per overload and dtype, made of their names alone."""
    names = [
        (case.overload.qualified_name, case.dtype)
        for overload in overloads()
        for case in cases_of(overload)
    ]
    assert len(set(names)) == len(names)


class TestTheLibraryRanTheRequestedImplementation:
    def test_another_slot_is_a_failure(self) -> None:
        infini.ops.add(torch.ones(1), torch.ones(1), torch.empty(1), implementation_index=8)
        check_slot("add", 8)
        with pytest.raises(
            WrongImplementationError, match=r"^add: expected a call of slot 0, the library ran"
        ):
            check_slot("add", 0)
        with pytest.raises(WrongImplementationError, match="the library ran Call"):
            check_slot("sub", 8)

    def test_another_device_is_a_failure(self) -> None:
        infini.ops.abs(torch.ones(1), torch.empty(1))
        check_device("cpu")
        with pytest.raises(WrongImplementationError, match=r"on npu, the library ran Call\(.*cpu"):
            check_device("npu")

    @pytest.mark.cpu_kernels
    @pytest.mark.operators("add")
    def test_a_test_that_ran_another_slot_says_which(self) -> None:
        written: dict[str, object] = {}
        record = Record(property=written.__setitem__, device="cpu", platform="cpu")
        run = Run(replace(case_of("add.out"), slot=8), "cpu")
        x = torch.ones(1)

        def by_slot_0(*_: object, **__: object) -> CallOutcome:
            infini.ops.add(x, x, torch.empty(1), implementation_index=0)
            check_slot("add", 8)
            raise AssertionError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("test_torch_ops.check", by_slot_0)
            with pytest.raises(
                WrongImplementationError, match=r"^add: expected a call of slot 8, the library ran"
            ):
                run.execute(run.case.samples[0], by_keyword=False)
        record.write_run(executed=run.executed, device=run.ran_device)
        assert written == {"executed": 1, "ran_slot": 0}

    @pytest.mark.operators("upsample_nearest2d")
    def test_a_sample_that_runs_as_another_overload_fails(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(case_of("upsample_nearest2d.vec_out"), "cpu")
        monkeypatch.setattr(Overload, "_by_keyword", Overload._by_position)
        with pytest.raises(MismatchError, match=r"took the call for upsample_nearest2d\.out"):
            run.execute(run.case.samples[0], by_keyword=False)

    @pytest.mark.operators("upsample_nearest2d")
    def test_a_sample_that_only_keywords_tell_apart_is_passed_by_keyword(self) -> None:
        run = Run(case_of("upsample_nearest2d.vec_out"), "cpu")
        for sample in run.case.samples:
            run.execute(sample, by_keyword=False)
        assert (run.executed, run.ran_device) == (len(run.case.samples), "cpu")

    @pytest.mark.operators("abs_inplace")
    def test_a_vacuous_sample_is_a_failure_on_the_torch_that_recorded_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        positive = TensorValue("float32", (1,), (1,), bytes(torch.ones(1).view(torch.uint8)))
        vacuous = Sample("abs_", "float32", {"self": positive})
        monkeypatch.setattr(torch, "__version__", load().header["torch_version"])
        with pytest.raises(VacuousError, match="abs_ changes nothing"):
            Run(case_of("abs_"), "cpu").execute(vacuous, by_keyword=False)
        monkeypatch.setattr(torch, "__version__", "1.0.0")
        run = Run(case_of("abs_"), "cpu")
        run.execute(vacuous, by_keyword=False)
        assert run.refusals == [
            (SkipReason.NOT_IN_THIS_TORCH, "abs_ changes nothing in this sample")
        ]


def case_of(name: str) -> Case:
    return next(
        case
        for overload in overloads()
        if overload.qualified_name == name
        for case in cases_of(overload)
        if case.dtype == "float32"
    )
