"""What changed between two suites, and how it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from ci.facts.difference import (
    ChangedTest,
    Difference,
    compare_outcomes,
    compare_suites,
    group_lines,
)
from ci.facts.suite import Outcomes, abbreviate_variants, outcomes_of, suite_of
from ci.gates.regression import ChangeKind
from ci.model.outcomes import OperatorTest, Outcome, State, Suite, TestOutcome
from tests.ci.made_results import made_test
from tests.ci.operator_log import FUNCTION, node_id

PASSED, FAILED = State(Outcome.PASSED), State(Outcome.FAILED)
NO_SAMPLE = State(Outcome.SKIPPED, "no sample")
NO_KERNEL = State(Outcome.SKIPPED, "no kernel on this device")
ADD = node_id("add.out")


def ended_tests(states: Mapping[str, State]) -> list[TestOutcome]:
    return [
        made_test(name, state.outcome, skip_reason=state.reason) for name, state in states.items()
    ]


def suite(states: Mapping[str, State]) -> Suite:
    return suite_of(ended_tests(states))


def run(states: Mapping[str, State]) -> Outcomes:
    return outcomes_of(ended_tests(states))


def counted_only(given: Suite) -> Suite:
    """The suite in the form of a contract."""
    return replace(given, others=None)


def kinds(found: Difference) -> dict[ChangeKind, int]:
    return {kind: found.count(kind) for kind in ChangeKind if found.of(kind)}


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (PASSED, None, ChangeKind.VANISHED),
        (NO_SAMPLE, None, ChangeKind.VANISHED),
        (PASSED, FAILED, ChangeKind.NEWLY_FAILING),
        (NO_SAMPLE, State(Outcome.ERROR), ChangeKind.NEWLY_FAILING),
        (None, FAILED, ChangeKind.NEWLY_FAILING),
        (PASSED, NO_SAMPLE, ChangeKind.PASS_TO_SKIP),
        (PASSED, State(Outcome.XFAILED), ChangeKind.PASS_TO_SKIP),
        (None, NO_SAMPLE, ChangeKind.NEWLY_SKIPPED),
        (FAILED, NO_SAMPLE, ChangeKind.NEWLY_SKIPPED),
        (NO_SAMPLE, NO_KERNEL, ChangeKind.CHANGED_REASON),
        (NO_SAMPLE, PASSED, ChangeKind.SKIP_TO_PASS),
        (State(Outcome.SKIPPED, "torch refuses"), PASSED, ChangeKind.REFUSED_TO_PASS),
        (State(Outcome.SKIPPED, "torch crashes"), PASSED, ChangeKind.REFUSED_TO_PASS),
        (None, PASSED, ChangeKind.ADDED),
        (FAILED, PASSED, ChangeKind.FIXED),
        (PASSED, PASSED, None),
        (PASSED, State(Outcome.XPASSED), None),
        (FAILED, State(Outcome.ERROR), None),
    ],
)
@pytest.mark.parametrize("name", [ADD, "t.py::test_a[x]"])
def test_every_change_has_one_kind(
    name: str, before: State | None, after: State | None, kind: ChangeKind | None
) -> None:
    base = suite({name: before} if before else {})
    head = suite({name: after} if after else {})
    expected = {kind: 1} if kind else {}
    assert kinds(compare_suites(base, head)) == expected
    runs = run({name: before} if before else {}), run({name: after} if after else {})
    assert kinds(compare_outcomes(*runs)) == expected
    assert kinds(compare_suites(counted_only(base), head)) == expected


def test_regressions_are_what_people_must_look_at() -> None:
    assert {kind for kind in ChangeKind if kind.regression} == {
        *(ChangeKind.VANISHED, ChangeKind.NEWLY_FAILING),
        *(ChangeKind.PASS_TO_SKIP, ChangeKind.NEWLY_SKIPPED),
    }


def test_the_device_is_no_part_of_the_name() -> None:
    cpu = suite({node_id("add.out"): PASSED, "t.py::test_a": PASSED})
    cuda = suite({node_id("add.out", device="cuda"): NO_KERNEL, "t.py::test_a": PASSED})
    found = compare_suites(cpu, cuda)
    assert kinds(found) == {ChangeKind.PASS_TO_SKIP: 1}
    assert found.unchanged == 1


@pytest.mark.parametrize("devices", [("cpu", "cpu"), ("cpu", "cuda")])
def test_runs_differ_as_their_suites_do(devices: tuple[str, str]) -> None:
    """Of two runs only what has changed is looked at; that must not show."""
    random = Random(8)  # noqa: S311
    states = [PASSED, FAILED, NO_SAMPLE, NO_KERNEL, None]
    for _ in range(50):
        sides = []
        for device in devices:
            names = [
                node_id(overload, dtype, slot=slot, device=random.choice([device, device, "npu"]))
                for overload in ("add.out", "mul", "fft_fft.out")
                for dtype in ("bool", "strided-float16")
                for slot in (0, 8)
            ]
            others = [f"t.py::test_a[{n}]" for n in range(4)]
            chosen = {name: random.choice(states) for name in random.sample(names + others, 9)}
            sides.append({name: state for name, state in chosen.items() if state is not None})
        whole = compare_suites(*map(suite, sides))
        quick = compare_outcomes(*map(run, sides))
        assert sorted(map(repr, whole.changes)) == sorted(map(repr, quick.changes))
        assert whole.unchanged == quick.unchanged


def test_runs_that_ended_alike_are_not_looked_at() -> None:
    def never() -> list[Any]:
        pytest.fail("a column is decoded")

    base, head = (
        Outcomes(
            read_names=lambda: ["a", "b"],
            read_endings=never,
            read_seconds=never,
            digest=("x", "y"),
        )
        for _ in range(2)
    )
    found = compare_outcomes(base, head)
    assert (found.changes, found.unchanged) == ((), 2)


def test_failures_are_grouped_by_their_messages_without_the_numbers() -> None:
    base = run({node_id(f"op{n}"): PASSED for n in range(3)} | {"t.py::test_a": PASSED})
    failing = {node_id("op0"): FAILED, node_id("op1"): FAILED}
    head = outcomes_of(
        made_test(name, Outcome.FAILED, reason=reason)
        for name, reason in [
            *zip(
                failing, ["AssertionError: 1 of 7\nmore", "AssertionError: 22 of 1e-5"], strict=True
            ),
            (node_id("op2"), "x" * 200),
            ("t.py::test_a", None),
        ]
    )
    found = compare_outcomes(base, head).of(ChangeKind.NEWLY_FAILING)
    assert group_lines(found) == [
        "2 tests: float32 of op0, op1 (slot 8; passed -> failed: AssertionError: 1 of 7)",
        f"1 test: float32 of op2 (slot 8; passed -> failed: {'x' * 100}...)",
        "1 test: t.py: test_a (passed -> failed)",
    ]


def test_many_operators_are_reported_by_their_families() -> None:
    names = [f"fft_{n}.out" for n in range(12)] + [f"linalg_{n}" for n in range(3)]
    names += ["_foreach_add", "add.out", "add_", "addmm", "mul"]
    base = suite({node_id(name): PASSED for name in names})
    [line] = group_lines(compare_suites(base, suite({})).of(ChangeKind.VANISHED))
    assert line.startswith("fft_* (12), linalg_* (3), _foreach_add, add.out, add_ and 2 more (all")


def test_slower_tests_are_reported_by_operator_and_by_seconds() -> None:
    def change(test: OperatorTest | str, before: float, after: float) -> ChangedTest:
        seconds = (before, after)
        return ChangedTest(
            kind=ChangeKind.SLOWER, test=test, before=PASSED, after=PASSED, seconds=seconds
        )

    add = [OperatorTest(FUNCTION, 8, "add.out", dtype) for dtype in ("bool", "int8")]
    changes = [change(add[0], 1.0, 4.0), change(add[1], 1.0, 5.0), change("t.py::test_a", 0.1, 9.0)]
    assert group_lines(changes) == [
        "1 test: t.py::test_a: 0.1 s -> 9.0 s",
        "2 tests: add.out (slot 8): 2.0 s -> 9.0 s",
    ]
    assert not Difference(changes=tuple(changes), unchanged=3).regression


def test_a_second_device_in_one_suite_keeps_its_name() -> None:
    both = suite({ADD: PASSED, node_id("add.out", device="cuda"): FAILED, node_id("mul"): PASSED})
    assert both.device == "cpu"
    assert set(both.operators) == {
        OperatorTest(FUNCTION, 8, "add.out", "float32"),
        OperatorTest(FUNCTION, 8, "mul", "float32"),
    }
    assert set(both.functions) == {FUNCTION}


@pytest.mark.parametrize(
    "name",
    [
        *("t.py::test_a", "t.py::test_a[x]", "t.py", "t.py::test_a[add-float32-cpu-slot08]"),
        *(
            "t.py::test_a[add-float32-cpu-slot8]x",
            "t.py::test_a[add-all-cpu-slot8]",
            "t.py::test_a[add-x-all-cpu-slot8]",
        ),
    ],
)
def test_other_tests_keep_their_node_ids(name: str) -> None:
    given = suite({name: PASSED})
    assert given.operators == {}
    assert given.others == {name: PASSED}


def test_tests_that_are_only_counted() -> None:
    states = {f"t.py::test_a[{n}]": PASSED for n in range(12)}
    fewer = dict(list(states.items())[:9]) | {"t.py::test_a[8]": NO_SAMPLE}
    found = compare_suites(counted_only(suite(states)), suite(fewer))
    assert kinds(found) == {ChangeKind.VANISHED: 3, ChangeKind.PASS_TO_SKIP: 1}
    assert found.unchanged == 8
    assert group_lines(found.of(ChangeKind.VANISHED)) == ["t.py: test_a (3) (was passed)"]


def test_counts_are_never_spelled_out() -> None:
    """A slip of the keyboard in a contract; as many elements would fill the memory."""
    name, many = "t.py::test_a", 10**12
    wrong = Suite(
        device=None,
        operators={},
        functions={name: Counter({PASSED: many, NO_SAMPLE: 2})},
        others=None,
    )
    found = compare_suites(wrong, suite({f"{name}[{n}]": NO_KERNEL for n in range(3)}))
    assert [(change.before, change.after, change.count) for change in found.changes] == [
        (PASSED, NO_KERNEL, 3),
        (PASSED, None, many - 3),
        (NO_SAMPLE, None, 2),
    ]


def test_a_parameter_that_is_renamed_shows_between_runs_only() -> None:
    base, head = suite({"t.py::test_a[x]": PASSED}), suite({"t.py::test_a[y]": PASSED})
    assert kinds(compare_suites(base, head)) == {ChangeKind.VANISHED: 1, ChangeKind.ADDED: 1}
    assert kinds(compare_suites(counted_only(base), head)) == {}


def test_tests_of_one_function_are_reported_together() -> None:
    base = suite({f"t.py::test_{name}": PASSED for name in ("a[0]", "a[1]", "a[2]", "b[x]")})
    lines = group_lines([*compare_suites(base, suite({})).changes])
    assert lines == ["t.py: test_a (3), test_b[x] (was passed)"]


def test_two_hundred_vanished_tests_of_one_dtype_are_one_line() -> None:
    base = suite(
        {node_id(f"op{n}.out", dtype): PASSED for n in range(200) for dtype in ("bool", "float16")}
    )
    head = suite({node_id(f"op{n}.out", "bool"): PASSED for n in range(200)})
    found = compare_suites(base, head)
    assert found.headline(ChangeKind.VANISHED) == "200 tests vanished"
    assert group_lines(found.of(ChangeKind.VANISHED)) == [
        "float16 of op0.out, op1.out, op10.out, op100.out, op101.out and 195 more"
        " (slot 8; was passed)"
    ]


def test_a_whole_slot_that_is_gone_is_one_line_and_says_so() -> None:
    dtypes = {"add": ("bool", "int8"), "mul": ("bool",), "sub": ("float16", "int64")}
    native = {node_id(name, dtype, slot=0): PASSED for name in dtypes for dtype in dtypes[name]}
    here, there = suite({ADD: PASSED} | native), suite({ADD: PASSED})
    gone, come = compare_suites(here, there), compare_suites(there, here)
    assert group_lines(gone.of(ChangeKind.VANISHED)) == [
        "add, mul, sub (all of slot 0; was passed)"
    ]
    assert group_lines(come.of(ChangeKind.ADDED)) == ["add, mul, sub (all of slot 0; passed)"]
    assert gone.count(ChangeKind.VANISHED) == come.count(ChangeKind.ADDED) == 5


def test_groups_are_bounded_and_the_rest_is_counted() -> None:
    changes = [
        ChangedTest(
            kind=ChangeKind.VANISHED,
            test=OperatorTest(FUNCTION, 8, f"op{n}", f"type{n}"),
            before=PASSED,
            after=None,
        )
        for n in range(33)
    ]
    lines = group_lines(changes)
    assert len(lines) == 11
    assert lines[0] == "1 test: type0 of op0 (slot 8; was passed)"
    assert lines[-1] == "and 23 tests more, in 23 groups"


def test_the_largest_group_comes_first_and_reasons_are_apart() -> None:
    base = suite({node_id(f"op{n}", "float32"): PASSED for n in range(4)})
    head = suite({node_id(f"op{n}", "float32"): NO_KERNEL if n else NO_SAMPLE for n in range(4)})
    assert group_lines([*compare_suites(base, head).changes]) == [
        "3 tests: float32 of op1, op2, op3 (slot 8; passed -> no kernel on this device)",
        "1 test: float32 of op0 (slot 8; passed -> no sample)",
    ]


@pytest.mark.parametrize(
    ("dtypes", "text"),
    [
        ("float16 float32 float64 bfloat16", "floating"),
        ("float16 float32 float64 bfloat16 int64", "floating int64"),
        ("float16 float32 float64 bfloat16 int64 bool complex64 int8", "all int8"),
        ("float16 float32 int64", "float16 float32 int64"),
        ("int8 int16 int32 int64 uint8 bool", "integer bool"),
        ("b-float16 b-float32 b-float64 b-bfloat16 a-b-bool int8", "int8 a-b-bool b-floating"),
    ],
)
def test_a_class_of_dtypes_stands_for_exactly_its_members(dtypes: str, text: str) -> None:
    assert abbreviate_variants(dtypes.split()) == text


def test_counts_of_a_suite() -> None:
    given = suite({ADD: PASSED, "t.py::test_a[x]": NO_SAMPLE, "t.py::test_a[y]": PASSED})
    assert given.counts() == Counter({Outcome.PASSED: 2, Outcome.SKIPPED: 1})
