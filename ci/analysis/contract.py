"""``<platform>.yaml``: the outcomes that a platform's suite is expected to have.

Written from a run, reviewed by people, and read as strictly as the configuration. The file
says what each abbreviation of dtypes stands for, so it can be read without this program.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import yaml

from ci.analysis.operators import SKIP_REASONS, known_reason
from ci.analysis.suite import (
    DTYPE_CLASSES,
    OperatorTest,
    State,
    Suite,
    abbreviated,
    is_variant,
    spelled_out,
)
from ci.config.document import Document, Finding, Location, read_document
from ci.errors import ConfigError, UsageError
from ci.pytest_log import Outcome
from ci.results import kind, without_hardware
from ci.text import first_names, near_match

SCHEMA_VERSION = 1
KEYS = ("schema_version", "platform", "simulated", "device", "dtypes", "operators", "tests")
OPTIONAL_KEYS = frozenset({"simulated"})
# A failure is never what is expected.
OUTCOMES = {
    outcome.value: State(outcome)
    for outcome in (Outcome.PASSED, Outcome.XPASSED, Outcome.XFAILED, Outcome.SKIPPED)
}
_PLAIN = re.compile(r"[A-Za-z_](?:[\w./()-]|::| (?=\w))*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What is expected of a platform."""

    platform: str
    suite: Suite
    simulated: bool = False


def update_command(platform: str, config: str | None = None) -> str:
    option = f" --config {config}" if config else ""
    return f"python -m ci contract {platform}{option}"


# Writing


def contract_text(
    contract: Contract,
    *,
    config: str | None = None,
    torch_version: str | None = None,
    date: datetime | None = None,
) -> str:
    """The file's content; raises ``UsageError`` for what no contract can hold.

    ``config`` names the configuration, where it is not the usual one.
    """
    suite = contract.suite
    _refuse_failures(suite)
    _refuse_unknown_reasons(suite)
    lines = [
        *_head(contract, update_command(contract.platform, config), torch_version, date),
        f"schema_version: {SCHEMA_VERSION}",
        f"platform: {_scalar(contract.platform)}",
        *(["simulated: true"] if contract.simulated else []),
        f"device: {_scalar(suite.device) if suite.device else 'null'}",
        "dtypes:",
        *(f"  {name}: {' '.join(members)}" for name, members in DTYPE_CLASSES.items()),
        *_operator_lines(suite.operators),
        *_test_lines(suite.functions),
    ]
    return "\n".join(lines) + "\n"


def _refuse_failures(suite: Suite) -> None:
    failing = [_id(test) for test, state in suite.operators.items() if state.outcome.bad]
    failing += [
        name for name, states in suite.functions.items() if any(s.outcome.bad for s in states)
    ]
    if failing:
        message = f"a failure is never part of a contract: {first_names(sorted(failing))}"
        raise UsageError(message, remedy="Correct or quarantine what fails, and run again.")


def _refuse_unknown_reasons(suite: Suite) -> None:
    """Operator tests skip for a known reason; others may do without, or count as operators."""
    skipped = [
        _id(test)
        for test, state in suite.operators.items()
        if state.outcome is Outcome.SKIPPED and not known_reason(state.reason)
    ]
    skipped += [
        name
        for name, states in suite.functions.items()
        if any(state.reason is not None and not known_reason(state.reason) for state in states)
    ]
    if skipped:
        message = f"skipped without a reason that is known: {first_names(sorted(skipped))}"
        raise UsageError(message, remedy=f"Known: {', '.join(SKIP_REASONS)}.")


def _id(test: OperatorTest) -> str:
    return f"{test.function}[{test.overload}-{test.variant}-slot{test.slot}]"


def _head(
    contract: Contract, command: str, torch_version: str | None, date: datetime | None
) -> list[str]:
    torch = f", torch {torch_version}" if torch_version else ""
    day = f" on {date:%Y-%m-%d}" if date else ""
    note = without_hardware(contract.platform)
    simulated = ["#", f"# {note.capitalize()}."] if contract.simulated else []
    return [
        f"# What the suite is expected to do on {contract.platform}. A run fails if a test vanishes"
        " or",
        "# begins to skip.",
        *simulated,
        "#",
        f"# Written{day} from a run{torch}:",
        f"#   {command}",
        "# writes it anew from the latest run; people review what changes.",
        "# One line per overload: the dtypes that pass, or the dtypes by outcome. All other tests",
        "# are counted by function.",
    ]


def _operator_lines(operators: Mapping[OperatorTest, State]) -> Iterator[str]:
    if not operators:
        yield "operators: {}"
        return
    yield "operators:"
    place = ("", -1)
    for (function, slot, overload), states in _by_overload(operators):
        if function != place[0]:
            yield f"  {_scalar(function)}:"
        if (function, slot) != place:
            yield f"    slot {slot}:"
        place = (function, slot)
        words = {state: abbreviated(variants) for state, variants in states.items()}
        yield f"      {_scalar(overload)}: {_outcomes(words)}"


def _by_overload(
    operators: Mapping[OperatorTest, State],
) -> list[tuple[tuple[str, int, str], dict[str, set[str]]]]:
    found: dict[tuple[str, int, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for test, state in operators.items():
        found[test.function, test.slot, test.overload][str(state)].add(test.variant)
    return sorted(found.items())


def _test_lines(functions: Mapping[str, Counter[State]]) -> Iterator[str]:
    if not functions:
        yield "tests: {}"
        return
    yield "tests:"
    for name, states in sorted(functions.items()):
        counts = {str(state): str(count) for state, count in states.items()}
        yield f"  {_scalar(name)}: {_outcomes(counts)}"


def _outcomes(values: Mapping[str, str]) -> str:
    """``floating bool``, all of which pass, or ``{passed: floating, no sample: bool}``."""
    if [*values] == ["passed"]:
        return _value(values["passed"])
    pairs = (f"{_scalar(state)}: {_value(values[state])}" for state in _passed_first(values))
    return f"{{{', '.join(pairs)}}}"


def _passed_first(states: Iterable[str]) -> list[str]:
    return sorted(states, key=lambda state: (state != "passed", state))


def _value(text: str) -> str:
    return text if text.isdigit() else _scalar(text)


def _scalar(text: str) -> str:
    """A string as YAML has it, in quotes where it would be something else without."""
    if _PLAIN.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    return yaml.safe_dump(text, default_style='"', width=float("inf")).rstrip("\n")


# Reading


def load_contract(
    path: Path, *, platform: str | None = None, simulated: bool | None = None
) -> Contract:
    """Read a contract, of a certain platform, simulated or not, if that is said.

    Raises:
        ConfigError: with all findings, each with its line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    document = read_document(text)
    if document.data is None and document.findings:  # no YAML at all
        raise _wrong(path, document.findings)
    reader = _Reader(document=document)
    contract = reader.read()
    if platform is not None and contract.platform != platform:
        reader.expected(("platform",), contract.platform, f"'{platform}', as this file is named")
    if simulated is not None and contract.simulated is not simulated:
        reader.other_kind(contract)
    if reader.findings:
        raise _wrong(path, reader.findings)
    return contract


def _wrong(path: Path, findings: Iterable[Finding]) -> ConfigError:
    ordered = sorted(findings, key=lambda finding: (finding.line, str(finding.location)))
    remedy = "Correct it, or write it anew with `python -m ci contract`."
    return ConfigError("\n".join(f.render(str(path)) for f in ordered), remedy=remedy)


@dataclass
class _Reader:
    """Takes a document apart, and collects what is wrong with it."""

    document: Document
    findings: list[Finding] = field(default_factory=list)
    classes: dict[str, list[str]] = field(default_factory=dict)

    def read(self) -> Contract:
        self.findings += self.document.findings
        root = self._mapping((), self.document.data)
        self._keys(root)
        version = root.get("schema_version", SCHEMA_VERSION)
        if type(version) is not int or version != SCHEMA_VERSION:
            self.expected(("schema_version",), version, str(SCHEMA_VERSION))
        self._classes(root.get("dtypes", {}))
        device = root.get("device")
        suite = Suite(
            device=None if device is None else self._text(("device",), device),
            operators=dict(self._operators(root.get("operators", {}))),
            functions=dict(self._functions(root.get("tests", {}))),
            others=None,
        )
        simulated = root.get("simulated", False)
        if not isinstance(simulated, bool):
            self.expected(("simulated",), simulated, "true or false")
        platform = self._text(("platform",), root.get("platform", ""))
        return Contract(platform=platform, suite=suite, simulated=simulated is True)

    def _keys(self, root: Mapping[str, object]) -> None:
        for name in root:
            if name not in KEYS:
                expected = f"one of {', '.join(KEYS)}" + near_match(name, KEYS)
                self._report((name,), f"got an unknown key, expected {expected}")
        for name in KEYS:
            if name not in root and name not in OPTIONAL_KEYS:
                self._report((), f"{name}: got nothing, expected a value; this key is required")

    def _classes(self, value: object) -> None:
        for name, members in self._mapping(("dtypes",), value).items():
            self.classes[name] = self._text(("dtypes", name), members).split()

    def _operators(self, value: object) -> Iterator[tuple[OperatorTest, State]]:
        for function, slots in self._mapping(("operators",), value).items():
            place: Location = ("operators", function)
            for key, overloads in self._mapping(place, slots).items():
                slot = self._slot((*place, key), key)
                for overload, dtypes in self._mapping((*place, key), overloads).items():
                    at = (*place, key, overload)
                    for variant, state in self._variants(at, dtypes):
                        yield OperatorTest(function, slot, overload, variant), state

    def _slot(self, place: Location, key: str) -> int:
        found = re.fullmatch(r"slot (0|[1-9]\d*)", key, re.ASCII)
        if found is None:
            self._report(place, f"got '{key}', expected a slot, such as 'slot 8'")
        return int(found[1]) if found else 0

    def _variants(self, place: Location, value: object) -> Iterator[tuple[str, State]]:
        seen: set[str] = set()
        for at, state, dtypes in self._states(place, value):
            if state == State(Outcome.SKIPPED):
                self._report(at, "got 'skipped', expected the reason")
            for word in self._text(at, dtypes).split():
                self._check_word(at, word)
                for variant in spelled_out(word, self.classes):
                    if variant in seen:
                        self._report(at, f"got '{variant}' twice, expected it once")
                    seen.add(variant)
                    yield variant, state

    def _check_word(self, place: Location, word: str) -> None:
        """Any word may be a dtype, of one vendor or one day; a misspelled class is none."""
        dtype = word.rpartition("-")[2]
        hint = near_match(dtype, self.classes, cutoff=0.8)  # float is 0.77 of floating
        if not is_variant(word) or (hint and dtype not in self.classes):
            text = f"got '{word}', expected dtypes or classes of dtypes, with spaces between"
            self._report(place, text + hint)

    def _functions(self, value: object) -> Iterator[tuple[str, Counter[State]]]:
        for function, outcomes in self._mapping(("tests",), value).items():
            states: Counter[State] = Counter()
            for at, state, count in self._states(("tests", function), outcomes):
                if type(count) is int and count > 0:
                    states[state] = count
                else:
                    self.expected(at, count, "a number of tests")
            yield function, states

    def _states(self, place: Location, value: object) -> Iterator[tuple[Location, State, object]]:
        """What stands for each outcome; a value alone is that of the tests that pass."""
        if not isinstance(value, dict):
            yield place, OUTCOMES["passed"], value
            return
        if not value:
            self.expected(place, value, "at least one outcome")
        for name, item in value.items():
            at = (*place, name)
            state = OUTCOMES.get(name)
            if state is None and not known_reason(name):
                known = [*OUTCOMES, *SKIP_REASONS]
                text = f"got '{name}', expected an outcome or a reason: {', '.join(known)}"
                self._report(at, text + near_match(name, known))
                continue
            yield at, state or State(Outcome.SKIPPED, name), item

    def _mapping(self, place: Location, value: object) -> dict[str, object]:
        if isinstance(value, dict):
            return value
        self.expected(place, value, "a mapping")
        return {}

    def _text(self, place: Location, value: object) -> str:
        if isinstance(value, str) and value.strip():
            return value
        self.expected(place, value, "text")
        return ""

    def other_kind(self, contract: Contract) -> None:
        """Neither stands for the other, however alike their tests are."""
        of, asked = kind(simulated=contract.simulated), kind(simulated=not contract.simulated)
        text = f"got a contract of a {of} {contract.platform}, expected one of a {asked} one"
        self._report(("simulated",), f"{text}; name a folder for each with `contracts`")

    def expected(self, place: Location, value: object, what: str) -> None:
        if any(finding.location == place for finding in self.findings):
            return  # it has no value because something is wrong with it
        got = "nothing" if value is None or value == "" else repr(value)
        self._report(place, f"got {got}, expected {what}")

    def _report(self, place: Location, text: str) -> None:
        line = self.document.line_of(place)
        self.findings.append(Finding(line=line, location=place, text=text))
