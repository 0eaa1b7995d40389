"""Hand-written implementations, slots 0 to 7 and 9, against exact results within tolerance.

Recorded samples come from torch's own tests; here the operands are laid out in the ways
that hand-written kernels get wrong: strided, broadcast and empty, inputs and outputs. Recorded
calls of the same overload run too, if the implementation accepts them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness import equal, invoke, poison
from installed import (
    HAND_WRITTEN_SLOTS,
    TORCH_SLOT,
    TRITON_SLOT,
    check_device,
    check_slot,
    hand_written_slots,
    native_metadata,
    native_operators,
    overloads,
)
from names import operator_test_id
from native_examples import ANY, COMMON, OPERATORS
from native_operands import SIGNED, Example, Maker, Mover, Tolerance, outside
from programs import output_of
from properties import Record
from reasons import SkipReason, skip
from samples import load
from samples.values import dtype_name
from target import skip_without_device
from torch.utils._python_dispatch import TorchDispatchMode

import infini.ops
import torch


@dataclass(frozen=True)
class Case:
    """One hand-written implementation with operands of one dtype."""

    name: str
    slot: int
    dtype: torch.dtype = torch.float32

    @property
    def properties(self) -> dict[str, Any]:
        """The properties in the test's id and record."""
        return {"overload": self.name, "dtype": dtype_name(self.dtype), "slot": self.slot}

    @property
    def may_refuse(self) -> bool:
        """Whether it may refuse calls. Triton's kernels support only a few layouts."""
        return self.slot == TRITON_SLOT or not self.is_required

    @property
    def is_required(self) -> bool:
        return self.dtype in OPERATORS[self.name].required

    def must_take(self, refusal: str) -> bool:
        """Report whether an implementation that refused all calls with this message is wrong."""
        is_common = self.dtype in COMMON
        return self.is_required and (is_common or self.dtype in types_taken(refusal))

    def call(self, arguments: dict[str, Any], outs: dict[str, torch.Tensor]) -> None:
        getattr(infini.ops, self.name)(**arguments, **outs, implementation_index=self.slot)
        check_slot(self.name, self.slot)


def unselected_slots_of(name: str, device: str) -> list[int]:
    """Returns the slots of an operator that was not selected for the build."""
    platforms = {each.name for each in infini.ops.platforms() if each.torch_device == device}
    return [
        entry["slot"]
        for entry in native_metadata()["not_selected"]
        if entry["name"] == name and entry["device"] in platforms
    ]


# Finite, but too large for the dtype.
TOO_LARGE_FACTORS = ((torch.float16, 65505.0), (torch.bfloat16, 3.39e38), (torch.float32, 3.5e38))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    device = metafunc.config.getoption("device")
    slots = {
        name: hand_written_slots(name, device) + unselected_slots_of(name, device)
        for name in OPERATORS
    }
    names = [name for name in OPERATORS if slots[name]]
    if metafunc.function is test_native:
        cases = list(_cases(device, metafunc.config.getoption("slot") or []))
        ids = [operator_test_id(device=device, **case.properties) for case in cases]
        metafunc.parametrize("case", cases, ids=ids)
    elif "case" in metafunc.fixturenames:
        cases = [Case(name, slot) for name in names for slot in slots[name]]
        if metafunc.function is TestRefusals.test_outs_that_overlap:
            cases = [case for case in cases if len(_plain(case)[1]) > 1]
        ids = [f"{case.name}-slot{case.slot}" for case in cases]
        metafunc.parametrize("case", cases, ids=ids)
    elif metafunc.function is test_eight_threads_at_once:
        metafunc.parametrize("device", [device] if names else [], scope="session")
    elif "too_large" in metafunc.fixturenames:
        metafunc.parametrize("too_large", TOO_LARGE_FACTORS if "add" in names else [], ids=str)
    elif "shadowing" in metafunc.fixturenames:
        metafunc.parametrize("shadowing", [name for name in names if OPERATORS[name].recorded])
    elif "alone" in metafunc.fixturenames:
        metafunc.parametrize("alone", [name for name in names if not OPERATORS[name].recorded])


def _cases(device: str, requested: list[int]) -> Iterator[Case]:
    """Yields the slots that the library has on the device, and those of ``--slot``."""
    for name, operator in OPERATORS.items():
        wanted = {slot for slot in requested if slot in HAND_WRITTEN_SLOTS}
        for slot in sorted({*hand_written_slots(name, device), *wanted}):
            for dtype in operator.dtypes:
                yield Case(name, slot, dtype)


def test_every_native_operator_is_tested() -> None:
    assert {operator.name for operator in native_operators()} <= OPERATORS.keys()


def test_native(case: Case, record: Record) -> None:
    active = case.slot in hand_written_slots(case.name, record.device)
    record.write_request(**case.properties, active=active)
    if not active:
        skip(SkipReason.SLOT_NOT_ACTIVE, f"slot {case.slot} on {record.device}")
    skip_without_device(record.device, record.platform)
    run = Run(case, record.device)
    for example in OPERATORS[case.name].examples(case.dtype):
        run.execute(example)
    for example in _recorded(case):
        run.execute(example)
    record.write_run(executed=run.executed, device=run.ran_device)
    assert not run.failures, "\n".join(run.failures)
    if not run.executed:
        assert not case.must_take(run.refusal), run.refusal
        skip(SkipReason.DTYPE_UNSUPPORTED, run.refusal)


def test_calls_on_the_same_memory_give_the_same_bits(case: Case, device: str) -> None:
    """Also the last of many: what is kept between calls must not matter."""
    if case.slot not in hand_written_slots(case.name, device):
        skip(SkipReason.NOT_SELECTED, f"this library was built without slot {case.slot}")
    move = Mover(device)
    example = next(OPERATORS[case.name].examples(torch.float32))
    arguments = {name: move(value) for name, value in example.arguments.items()}
    outs = {name: move(out) for name, out in example.outs.items()}
    before = {name: out.clone() for name, out in outs.items()}
    results = []
    for _ in range(20):
        for name, out in outs.items():
            out.copy_(before[name])
        case.call(arguments, outs)
        results.append([out.cpu().clone() for out in outs.values()])
    assert all(
        equal(one, other) for each in results for one, other in zip(each, results[0], strict=True)
    )


def types_taken(refusal: str) -> set[torch.dtype]:
    """Returns the types that a refusal lists as those that the slot takes; without a list, all."""
    listed = re.search(r"; got |of one type \((.+?)\)", refusal)
    if listed is None or listed[1] is None:
        return set(ANY)
    names = set(re.split(", | or ", listed[1]))
    signed = SIGNED if "a signed integer type" in names else ()
    return {dtype for dtype in ANY if dtype in signed or dtype_name(dtype) in names}


class Run:
    """The calls of one case: how many ran, and which failed."""

    def __init__(self, case: Case, device: str) -> None:
        self.case = case
        self._device = device
        self.executed = 0
        self.ran_device: str | None = None
        self.failures: list[str] = []
        self.refusal = ""

    def execute(self, example: Example) -> None:
        may_refuse = example.is_optional or self.case.may_refuse
        try:
            self._check(example)
        except ValueError as error:
            # The implementation names the calls that it takes.
            if may_refuse and f"slot {self.case.slot} takes " in str(error):
                self.refusal = str(error)
                return
            self.failures.append(f"{example.title}: {error}")
        except Exception as error:
            self.failures.append(f"{example.title}: {error}")
        self.executed += 1

    def _check(self, example: Example) -> None:
        if not example.keeps_out:
            for name, out in example.outs.items():
                out.copy_(poison(example.results[name]))
        move = Mover(self._device)
        arguments = {name: move(value) for name, value in example.arguments.items()}
        outs = {name: move(out) for name, out in example.outs.items()}
        before = outside(*outs.values())
        addresses = [out.data_ptr() for out in outs.values()]
        self.case.call(arguments, outs)
        check_device(self._device)
        self.ran_device = outs[example.name].device.type
        moved = [out.data_ptr() for out in outs.values()] != addresses
        assert not moved, "the memory of an out moved"
        compare(outs, example)
        assert equal(outside(*outs.values()), before), "memory beside an out was written"


def compare(outs: dict[str, torch.Tensor], example: Example) -> None:
    allowed = example.tolerance
    for name, expected in example.results.items():
        torch.testing.assert_close(
            outs[name].cpu(),
            expected,
            rtol=allowed.rtol,
            atol=allowed.atol,
            equal_nan=True,
            msg=partial("{}: {}".format, name),
        )


def _recorded(case: Case) -> Iterator[Example]:
    """Yields the recorded calls of one dtype, with torch's results."""
    recorded = OPERATORS[case.name].recorded
    for overload in overloads():
        if overload.qualified_name != recorded:
            continue
        samples = load().samples.get(recorded, {}).get(dtype_name(case.dtype), [])
        for number, sample in enumerate(samples):
            if sample.fits(overload.aten()._schema):
                expected = sample.bind(overload.aten()._schema, "cpu")
                invoke(overload.aten(), expected)
                values = sample.bind(overload.aten()._schema, "cpu")
                names = [parameter.aten_name(values) for parameter in overload.parameters]
                *inputs, out = (values[name] for name in names)
                *parameters, _ = (parameter.name for parameter in overload.parameters)
                yield Example(
                    title=f"recorded {number}",
                    arguments=dict(zip(parameters, inputs, strict=True)),
                    out=out,
                    expected=expected[names[-1]],
                    tolerance=_of_torch(case.dtype),
                    is_optional=True,
                )


def _of_torch(dtype: torch.dtype) -> Tolerance:
    """Returns what torch.testing allows by default: both round."""
    rtol, atol = torch.testing._comparison.default_tolerances(dtype)
    return Tolerance(rtol=rtol, atol=atol)


def test_an_operand_at_the_address_of_one_that_is_gone_has_other_memory() -> None:
    move = Mover("meta")
    memory = bytearray(64)
    for count in (2, 16):
        moved = move(torch.frombuffer(memory, dtype=torch.float32, count=count))
        assert moved.untyped_storage().nbytes() == 4 * count


def test_operands_that_share_memory_still_do() -> None:
    move = Mover("meta")
    whole = torch.zeros(16)
    first, second = move(whole[:8]), move(whole[4:])
    assert first.untyped_storage()._cdata == second.untyped_storage()._cdata


def test_an_implementation_may_take_fewer_types_if_it_says_so() -> None:
    """All must take the common ones."""
    takes = "add: slot 9 takes tensors of one type (float16, uint8 or a signed integer type), and"
    refusal = f"{takes} an out; got uint16[3], uint16[3] and out uint16[3]"
    cases = [Case("add", TRITON_SLOT, dtype) for dtype in OPERATORS["add"].dtypes]
    required = {case.dtype for case in cases if case.must_take(refusal)}
    assert required == {*COMMON, torch.uint8, *SIGNED}
    of_any_real_type = "add: slot 9 takes tensors of one real type; got uint16[3] of one type (x)"
    assert Case("add", TRITON_SLOT, torch.uint16).must_take(of_any_real_type)


class TestRefusals:
    """A refusal names what the slot takes and what it got."""

    @pytest.fixture(autouse=True)
    def _in_this_build(self, case: Case, device: str) -> None:
        if case.slot not in hand_written_slots(case.name, device):
            skip(SkipReason.NOT_SELECTED, f"this library was built without slot {case.slot}")

    def test_inputs_that_do_not_fit(self, case: Case, device: str) -> None:
        for arguments in OPERATORS[case.name].wrong():
            outs = {name: Maker(torch.float32)(3, 4) for name in _plain(case)[1]}
            outs = {name: out for name, out in outs.items() if name not in arguments}
            self._expect_refusal(case, device, arguments, outs)

    def test_outs_that_do_not_fit(self, case: Case, device: str) -> None:
        arguments, outs = _plain(case)
        first, out = next(iter(outs.items()))
        for wrong in (
            torch.zeros(*out.shape[:-1], out.shape[-1] + 1),
            torch.zeros(out.shape[0] + 1, *out.shape[1:]),
            torch.zeros(out.shape, dtype=torch.complex64),
            torch.zeros(()).expand(out.shape),  # all elements are one
        ):
            self._expect_refusal(case, device, arguments, outs | {first: wrong})

    def test_an_input_that_overlaps_the_out_in_part(self, case: Case, device: str) -> None:
        arguments, outs = _plain(case)
        written, out = next(iter(outs.items()))
        name, *_ = arguments
        first = arguments[name][0] if isinstance(arguments[name], list) else arguments[name]
        memory = torch.ones(max(first.numel(), out.numel()) + 1)
        overlapping = memory[1 : 1 + first.numel()].view(first.shape)
        rest = arguments[name][1:] if isinstance(arguments[name], list) else None
        arguments[name] = overlapping if rest is None else [overlapping, *rest]
        outs[written] = memory[: out.numel()].view(out.shape)
        self._expect_refusal(case, device, arguments, outs)

    def test_outs_that_overlap(self, case: Case, device: str) -> None:
        """Also as one view: which of the results would it have?"""
        arguments, outs = _plain(case)
        first, second, *_ = outs
        outs[second] = outs[first]
        self._expect_refusal(case, device, arguments, outs)

    def _expect_refusal(
        self,
        case: Case,
        device: str,
        arguments: dict[str, Any],
        outs: dict[str, torch.Tensor],
    ) -> None:
        move = Mover(device)
        moved = {name: move(value) for name, value in arguments.items()}
        form = rf"^{case.name}: slot {case.slot} takes .+; got .+"
        print(f"{_shapes(arguments)} into {_shapes(outs)}")  # shown if the test fails
        with pytest.raises(ValueError, match=form):
            case.call(moved, {name: move(out) for name, out in outs.items()})


def _plain(case: Case) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    example = next(OPERATORS[case.name].examples(torch.float32))
    return dict(example.arguments), example.outs


def _shapes(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shapes(each)}" for name, each in value.items())
    if isinstance(value, list):
        return f"[{', '.join(map(_shapes, value))}]"
    if isinstance(value, torch.Tensor):
        return f"{dtype_name(value.dtype)}{list(value.shape)}"
    return repr(value)


@pytest.mark.cpu_kernels
@pytest.mark.operators("gemm")
def test_a_refusal_names_the_arguments_that_are_not_the_default() -> None:
    x = torch.ones(2, 3)
    got = r"; got float32\[2, 3\], float32\[2, 3\], beta 2, trans_a True and out float32\[2, 2\]$"
    with pytest.raises(ValueError, match=got):
        infini.ops.gemm(x, x, 1, 2, True, False, torch.ones(2, 2), implementation_index=0)


def test_torch_takes_a_call_that_no_native_slot_takes(shadowing: str, device: str) -> None:
    """Complex numbers, which no native slot takes."""
    arguments, outs = _complex(shadowing, device)
    getattr(infini.ops, shadowing)(**arguments, **outs)
    ran = infini.ops.last_call()
    assert ran is not None
    assert (ran.operator, ran.slot) == (shadowing, TORCH_SLOT)
    example = next(OPERATORS[shadowing].examples(torch.float32))
    torch.testing.assert_close(outs[example.name].cpu().real.float(), example.expected)


def test_no_slot_of_add_takes_an_alpha_that_its_type_cannot_hold(
    too_large: tuple[torch.dtype, float], device: str
) -> None:
    dtype, alpha = too_large
    x = torch.ones(3, dtype=dtype, device=device)
    # On some devices torch computes in float32, and takes what that can hold.
    if device == "cpu" or alpha > torch.finfo(torch.float32).max:
        with pytest.raises(RuntimeError, match="without overflow"):
            torch.add(x, x, alpha=alpha)
    for slot in hand_written_slots("add", device):
        with pytest.raises(ValueError, match=rf"^add: slot {slot} takes .+; got .+"):
            infini.ops.add(x, x, alpha=alpha, out=x.clone(), implementation_index=slot)


def test_the_lowest_slot_refuses_a_call_that_no_slot_takes(alone: str, device: str) -> None:
    operator = getattr(infini.ops, alone)
    arguments, outs = _complex(alone, device)
    lowest, *_ = hand_written_slots(alone, device)
    with pytest.raises(ValueError, match=rf"^{alone}: slot {lowest} takes .+; got .+"):
        operator(**arguments, **outs)


def _complex(name: str, device: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Returns the plain example of an operator in complex numbers."""
    example = next(OPERATORS[name].examples(torch.float32))
    move = Mover(device)
    is_of_indices = not example.out.is_floating_point()  # which are converted, too

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(each) for each in value]
        if not isinstance(value, torch.Tensor):
            return value
        is_converted = is_of_indices or value.is_floating_point()
        return value.to(torch.complex128) if is_converted else value

    arguments = {key: move(convert(value)) for key, value in example.arguments.items()}
    outs = {key: torch.zeros_like(convert(out)) for key, out in example.outs.items()}
    return arguments, {key: move(out) for key, out in outs.items()}


@pytest.fixture
def _two_threads() -> Iterator[None]:
    """Sets two threads for torch; the suite uses one thread in a process for each core."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("_two_threads")
def test_eight_threads_at_once(device: str) -> None:
    """In turns, so that different operators use the library's threads at the same time."""
    move = Mover(device)
    calls = []
    for name in OPERATORS:
        for slot in hand_written_slots(name, device):
            examples = OPERATORS[name].examples(torch.float32)
            example = next(each for each in examples if each.title.startswith("large"))
            arguments = {key: move(value) for key, value in example.arguments.items()}
            calls.append((Case(name, slot), arguments, example))

    def run(thread: int) -> list[str]:
        failures = []
        for case, arguments, example in calls[thread:] + calls[:thread]:
            outs = {name: out.to(device, copy=True) for name, out in example.outs.items()}
            if not example.keeps_out:
                for key, out in outs.items():
                    out.copy_(poison(example.results[key]))
            try:
                case.call(arguments, outs)
                compare(outs, example)
            except Exception as error:
                failures.append(f"{case.name}: {error}")
        return failures

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(8))) == [[]] * 8


TASKS = Path("/proc/self/task")


STARTED_THREADS = """
import os, torch, infini.ops

x, weight, out = torch.ones(1024, 1024), torch.ones(1024), torch.zeros(1024, 1024)
for wanted in (1, 4):
    torch.set_num_threads(wanted)
    before = set(os.listdir("/proc/self/task"))
    infini.ops.rms_norm(x, weight, out, implementation_index=0)
    print(len(set(os.listdir("/proc/self/task")) - before))
"""


@pytest.mark.cpu_kernels
@pytest.mark.operators("rms_norm")
def test_torch_says_how_many_threads_there_are() -> None:
    """They start with the first call of a process that can use them."""
    first, second = map(int, output_of([sys.executable, "-c", STARTED_THREADS]).split())
    assert first == 0
    assert 0 < second <= 3


def test_the_librarys_threads_are_those_of_torch() -> None:
    """Threads of both spin after their work: with two pools they would compete for the cores."""
    x, weight, out = torch.ones(1024, 1024), torch.ones(1024), torch.zeros(1024, 1024)
    torch.set_num_threads(3)
    try:
        torch.add(x, x, out=out)
        before = set(TASKS.iterdir())
        infini.ops.rms_norm(x, weight, out, implementation_index=0)
        assert set(TASKS.iterdir()) <= before  # one of an earlier test may end meanwhile
    finally:
        torch.set_num_threads(1)


def test_products_on_any_thread_heed_torchs_number_of_threads() -> None:
    """A BLAS has a pool of its own, and a setting for each thread."""
    x, out = torch.ones(512, 512), torch.zeros(512, 512)

    def started() -> set[Path]:
        before = set(TASKS.iterdir())
        infini.ops.gemm(x, x, out=out, implementation_index=0)
        return set(TASKS.iterdir()) - before

    torch.set_num_threads(1)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(started).result() == set()


class _Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.cpu_kernels
def test_dispatch_modes_do_not_see_products_by_torchs_kernels() -> None:
    x, bias, out = torch.ones(64, 64), torch.ones(64), torch.zeros(64, 64)
    with _Recording() as mode:
        infini.ops.linear(x, x, bias, out=out, implementation_index=0)
    assert mode.seen == []
    assert out.unique().tolist() == [65.0]
