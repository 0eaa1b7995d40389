"""A suite's outcomes under names that two runs, two platforms and a contract share.

An operator test is identified by its function, overload, variant (as a rule a dtype) and slot, but
not by its device. Any other test is identified by its node id. A contract only counts these tests
by function.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ci.model.outcomes import (
    INSTRUCTION_SET,
    NOT_SELECTED,
    Ending,
    OperatorTest,
    Outcome,
    Processor,
    Selection,
    State,
    Suite,
    TestOutcome,
)

# Sets of dtypes that have a name, the largest first.
DTYPE_CLASSES: Mapping[str, tuple[str, ...]] = {
    "all": ("bfloat16", "bool", "complex64", "float16", "float32", "float64", "int64"),
    "integer": ("int16", "int32", "int64", "int8", "uint8"),
    "floating": ("bfloat16", "float16", "float32", "float64"),
}

LEAST_FAMILY = 3  # operators; two that share a word are not a family

_FIRST_WORD = re.compile(r"_*([a-z0-9]+)_(?=[a-z0-9])", re.ASCII)
_VARIANT = r"[\w.-]+"
_SLOT = "-slot"
# <overload>-<dtype>-<device>-slot<slot>
_PARTS = 4
_OPERATOR_TEST = re.compile(
    rf"(?P<function>[^\[]+)\[(?P<overload>[\w.]+)-(?P<variant>{_VARIANT})-(?P<device>\w+)"
    r"-slot(?P<slot>0|[1-9]\d*)\]",
    re.ASCII,
)


LACKS_INSTRUCTIONS = State(Outcome.SKIPPED, INSTRUCTION_SET)
UNSELECTED = State(Outcome.SKIPPED, NOT_SELECTED)


def adapt_to_processor(expected: Suite, found: Suite, processor: Processor | None) -> Suite:
    """Return ``expected`` for the processor on which ``found`` ran.

    Without a record of the processor, no test is excused from an outcome that depends on it.
    """
    operators = dict(expected.operators)
    for test, state in expected.operators.items():
        if state.needs is not None:
            is_lacking = processor is not None and not processor.has(state.needs)
            is_excused = is_lacking and found.operators.get(test) == LACKS_INSTRUCTIONS
            operators[test] = LACKS_INSTRUCTIONS if is_excused else state._replace(needs=None)
    return replace(expected, operators=operators)


def restrict_to_selection(
    expected: Suite, found: Suite, selection: Selection
) -> tuple[Suite, Suite]:
    """Return the expected and the actual suite without the tests of operators not selected.

    Operator tests of overloads that were not selected are removed. In each other function as many
    expected tests are excused as skipped for that reason or were excluded by the suite.
    """
    operators = {
        test: state for test, state in expected.operators.items() if selection.has(test.overload)
    }
    functions = {}
    for name, states in expected.functions.items():
        actual = found.functions.get(name, Counter())
        excused = selection.left_out.get(name, 0) + actual[UNSELECTED]
        missing = states - actual
        for state in sorted(missing, key=str):
            missing[state], excused = min(missing[state], excused), max(excused - missing[state], 0)
        functions[name] = states - missing
    others = {
        name: states - Counter({UNSELECTED: states[UNSELECTED]})
        for name, states in found.functions.items()
    }
    return (
        replace(expected, operators=operators, functions=_without_empty(functions)),
        replace(found, functions=_without_empty(others)),
    )


def _without_empty(functions: Mapping[str, Counter[State]]) -> dict[str, Counter[State]]:
    return {name: states for name, states in functions.items() if states}


def suite_of(tests: Iterable[TestOutcome]) -> Suite:
    """Make the suite of a run from its tests."""
    states = {test.node_id: State(test.outcome, test.skip_reason) for test in tests}
    return suite_from(states, main_device(states))


def suite_from(states: Mapping[str, State], device: str | None) -> Suite:
    """Make a suite from states by node id; ``device`` is the main device of the run."""
    operators: dict[OperatorTest, State] = {}
    others: dict[str, State] = {}
    functions: dict[str, Counter[State]] = {}
    for node_id, state in states.items():
        name = suite_name(node_id, device)
        if isinstance(name, OperatorTest):
            operators[name] = state
        else:
            others[name] = state
            functions.setdefault(name.partition("[")[0], Counter())[state] += 1
    return Suite(device=device, operators=operators, functions=functions, others=others)


def main_device(node_ids: Collection[str]) -> str | None:
    """Return the device of most operator tests; tests of other devices keep their node ids."""
    likely = (node_id for node_id in node_ids if _SLOT in node_id)
    devices = (found["device"] for node_id in likely if (found := _operator_test(node_id)))
    first = next(devices, None)
    if first is None:
        return None
    # Counting in a text takes 1 ms, parsing 17,000 names 40 ms: parse only until one has won.
    text = "\n".join(node_ids)
    others = text.count(_SLOT) - text.count(f"-{first}{_SLOT}")
    counts = Counter([first])
    for device in devices:
        if counts[first] > others:
            break
        counts[device] += 1
    return min(counts, key=lambda device: (-counts[device], device))


def suite_name(node_id: str, device: str | None) -> OperatorTest | str:
    """Return the name of a test in a suite of a device."""
    if f"-{device}{_SLOT}" not in node_id:  # parsing takes ten times as long
        return node_id
    found = _operator_test(node_id)
    if found is None or found["device"] != device:
        return node_id
    return OperatorTest(found["function"], int(found["slot"]), found["overload"], found["variant"])


def operator_of(node_id: str) -> str | None:
    """Return the operator of a test, without overload; ``None``: not an operator test."""
    if _SLOT not in node_id:
        return None
    parts = node_id.partition("[")[2].split("-")  # takes a quarter of the time of parsing
    return parts[0].partition(".")[0] if len(parts) >= _PARTS else None


def families(operators: Iterable[str]) -> dict[str, str]:
    """Map operators to a first word that several share: ``fft_ifft`` to ``fft_``."""
    words = {name: f"{found[1]}_" for name in operators if (found := _FIRST_WORD.match(name))}
    sizes = Counter(words.values())
    return {name: word for name, word in words.items() if sizes[word] >= LEAST_FAMILY}


def _operator_test(node_id: str) -> re.Match[str] | None:
    found = _OPERATOR_TEST.fullmatch(node_id)
    return found if found and _dtype(found["variant"])[1] not in DTYPE_CLASSES else None


def _dtype(variant: str) -> tuple[str, str]:
    """Split ``strided-float32`` before its dtype; most variants are only a dtype."""
    prefix, dash, dtype = variant.rpartition("-")
    return prefix + dash, dtype


def dtype_of(variant: str) -> str:
    """Return the dtype of a variant; of an overload without samples it is ``nosample``."""
    return _dtype(variant)[1]


def is_variant(word: str) -> bool:
    return re.fullmatch(_VARIANT, word, re.ASCII) is not None


def abbreviate_variants(variants: Iterable[str]) -> str:
    """``floating int64``: classes of dtypes that are complete, then single dtypes."""
    left: dict[str, set[str]] = {}
    for variant in variants:
        prefix, dtype = _dtype(variant)
        left.setdefault(prefix, set()).add(dtype)
    words = []
    for prefix, dtypes in sorted(left.items()):
        for name, members in DTYPE_CLASSES.items():
            if dtypes.issuperset(members):
                words.append(prefix + name)
                dtypes -= set(members)
        words += [prefix + dtype for dtype in sorted(dtypes)]
    return " ".join(words)


def expand_variants(word: str, classes: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the variants that one word of ``abbreviate_variants`` stands for."""
    prefix, dtype = _dtype(word)
    return [prefix + member for member in classes.get(dtype, [dtype])]


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcomes:
    """All tests of a run on one platform, in columns that are read on first use."""

    read_names: Callable[[], Sequence[str]]
    read_endings: Callable[[], Sequence[Ending]]
    read_seconds: Callable[[], Sequence[float]]
    digest: tuple[str, str] | None = None
    """Digests of names and endings; ``None``: unknown."""

    def ended_like(self, other: Outcomes) -> bool:
        """Whether every test ended as in the other run, with the same message."""
        return self.digest is not None and self.digest == other.digest

    def has_tests_of(self, other: Outcomes) -> bool:
        """Whether both are known to have the same tests, in the same order."""
        if self.digest is None or other.digest is None:
            return False
        return self.digest[0] == other.digest[0]

    @cached_property
    def names(self) -> Sequence[str]:
        return self.read_names()

    @cached_property
    def endings(self) -> Sequence[Ending]:
        return self.read_endings()

    @cached_property
    def seconds(self) -> Sequence[float]:
        return self.read_seconds()

    @property
    def rows(self) -> Iterable[tuple[str, Ending, float]]:
        """The name, the ending and the seconds of each test."""
        return zip(self.names, self.endings, self.seconds, strict=True)

    @cached_property
    def device(self) -> str | None:
        """The device of the operator tests; ``None``: there are none."""
        return main_device(self.names)

    @cached_property
    def states(self) -> Mapping[str, State]:
        """States by node id."""
        states = [ending.state for ending in self.endings]
        return dict(zip(self.names, states, strict=True))

    @cached_property
    def failures(self) -> Mapping[str, str | None]:
        """Messages of the tests that failed or had an error, by node id."""
        # Tests with equal endings share one object, so there are few to check.
        endings = {id(ending): ending for ending in self.endings}
        bad = {key: ending.message for key, ending in endings.items() if ending.state.outcome.bad}
        rows = zip(self.names, self.endings, strict=True)
        return {name: bad[id(ending)] for name, ending in rows if id(ending) in bad} if bad else {}

    @cached_property
    def passed_seconds(self) -> Mapping[str, float]:
        """Seconds of passed tests by node id; tests that did not pass may have stopped early."""
        passed = Outcome.PASSED
        return {name: took for name, (state, _), took in self.rows if state.outcome is passed}


def outcomes_of(tests: Iterable[TestOutcome]) -> Outcomes:
    """Make ``Outcomes`` from tests in memory."""
    ordered = list({test.node_id: test for test in tests}.values())
    endings = [Ending(State(test.outcome, test.skip_reason), test.reason) for test in ordered]
    return Outcomes(
        read_names=lambda: [test.node_id for test in ordered],
        read_endings=lambda: endings,
        read_seconds=lambda: [test.seconds for test in ordered],
    )
