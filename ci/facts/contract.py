"""Contracts: ``<platform>.yaml`` with the expected outcomes of a platform's suite.

A contract is written from a run, reviewed by people, and read as strictly as the configuration.
The file defines its abbreviations of dtypes, so it can be read without this program.

``passed with avx512_fp16: float16`` depends on the processor: see ``ci.model.outcomes.State``.
``torch`` is the version that the outcomes are of. With another one they are compared all the same,
but a call that torch no longer refuses does not break the contract.
A contract with a ``base``, another contract, lists only the differences from it. ``null`` marks an
entry that only the base has.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import yaml

from ci.errors import ConfigError, UsageError
from ci.facts.case import is_complete
from ci.facts.operators import known_reason, mismatches
from ci.facts.result_files import ResultFiles
from ci.facts.sentences.on_rows import compiled_only, simulated_device
from ci.facts.suite import (
    DTYPE_CLASSES,
    LACKS_INSTRUCTIONS,
    abbreviate_variants,
    expand_variants,
    is_variant,
    suite_name,
    suite_of,
)
from ci.model.outcomes import SKIP_REASONS, OperatorTest, Outcome, PytestLog, State, Suite
from ci.model.platforms import PLATFORMS
from ci.model.results import RunResult, device_kind, is_compiled_only
from ci.model.verdicts import Product
from ci.util.invocation import command
from ci.util.text import join_names, near_match
from ci.util.yaml import Document, FileFinding, Location, format_findings, read_document

# 1 had neither `base` nor outcomes that depend on the processor, 2 had no `torch`.
SCHEMA_VERSION = 3
KEYS = (
    *("schema_version", "base", "platform", "simulated", "device", "torch", "dtypes"),
    *("operators", "tests"),
)
OPTIONAL_KEYS = frozenset({"base", "simulated", "torch"})
MOST_BASES = 4  # longest chain of bases, so that a cycle is detected
PASSED_WITH = "passed with "
# Outcomes that can be expected; a failure cannot.
OUTCOMES = {
    outcome.value: State(outcome)
    for outcome in (Outcome.PASSED, Outcome.XPASSED, Outcome.XFAILED, Outcome.SKIPPED)
}
_NEEDS = re.compile(r"\w+(?: \w+)*", re.ASCII)
_PLAIN = re.compile(r"(?:\.\.?/)*[A-Za-z_](?:[\w./()-]|::| (?=\w))*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Contract:
    """The expected outcomes of a platform's suite."""

    platform: str
    suite: Suite
    simulated: bool = False
    torch: str | None = None
    """The version of torch that the outcomes are of; ``None``: unknown."""
    base: ContractBase | None = None
    """The contract from which this one lists the differences."""


class ContractBase(NamedTuple):
    """A base contract, and its file, relative to the contract that names it."""

    name: str
    contract: Contract


# The place of an entry: section and function; for operators also slot and overload.
_Place = tuple[str | int, ...]


# Writing


_HEAD = """\
# Expected test outcomes on {platform}. A run fails if a test vanishes or
# begins to skip.
{simulated}#
# Written{day} from a run:
#   python -m ci contract {platform}{option}
# rewrites it from the latest run. Review the changes before you commit them.
# One line per overload: the dtypes that pass, or the dtypes by outcome. All other tests
# are counted by function.
"""


def contract_text(
    contract: Contract,
    *,
    config: str | None = None,
    date: datetime | None = None,
) -> str:
    """Return the file's content; raises ``UsageError`` if the suite cannot be a contract.

    ``config`` names the configuration, if it is not the default one.
    """
    suite, base = contract.suite, contract.base
    _check_suite(suite)
    entries, inherited = _entries(suite), _entries(base.contract.suite) if base else {}
    is_compiled = is_compiled_only(contract.platform, simulated=True)
    note = (compiled_only(None) if is_compiled else simulated_device()).text.capitalize()
    head = _HEAD.format(
        platform=contract.platform,
        simulated=f"#\n# {note}.\n" if contract.simulated else "",
        day=f" on {date:%Y-%m-%d}" if date else "",
        option=f" --config {config}" if config else "",
    )
    lines = [
        f"schema_version: {SCHEMA_VERSION}",
        *([f"base: {_scalar(base.name)}"] if base else []),
        f"platform: {_scalar(contract.platform)}",
        *(["simulated: true"] if contract.simulated else []),
        f"device: {_scalar(suite.device) if suite.device else 'null'}",
        *([f"torch: {_scalar(contract.torch)}"] if contract.torch else []),
        "dtypes:",
        *(f"  {name}: {' '.join(members)}" for name, members in DTYPE_CLASSES.items()),
        *_section("operators", entries, inherited),
        *_section("tests", entries, inherited),
    ]
    return head + "\n".join(lines) + "\n"


def _check_suite(suite: Suite) -> None:
    """Raise ``UsageError`` for failures and for unknown skip reasons.

    Operator tests need a known skip reason. Other tests may have none, but not an unknown one.
    """
    states = [
        (f"{test.function}[{test.overload}-{test.variant}-slot{test.slot}]", state)
        for test, state in suite.operators.items()
    ]
    skipped = ((name, state) for name, state in states if state.outcome is Outcome.SKIPPED)
    unknown = {name for name, state in skipped if not known_reason(state.reason)}
    for name, counts in suite.functions.items():
        states += [(name, state) for state in counts]
        if not all(state.reason is None or known_reason(state.reason) for state in counts):
            unknown.add(name)
    if failing := {name for name, state in states if state.outcome.bad}:
        message = f"a contract cannot expect failures: {join_names(sorted(failing))}"
        raise UsageError(message, remedy="Fix or quarantine the failing tests, and run again.")
    if unknown:
        message = f"skipped without a known reason: {join_names(sorted(unknown))}"
        raise UsageError(message, remedy=f"Known skip reasons: {', '.join(SKIP_REASONS)}.")


def _entries(suite: Suite) -> dict[_Place, str]:
    """Return the file's entry for each overload, and for each other function."""
    variants: dict[_Place, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for test, state in suite.operators.items():
        place = ("operators", test.function, test.slot, test.overload)
        variants[place][str(state)].add(test.variant)
    entries = {
        place: _outcomes(
            {state: _scalar(abbreviate_variants(names)) for state, names in states.items()}
        )
        for place, states in variants.items()
    }
    for name, counts in suite.functions.items():
        entries["tests", name] = _outcomes({str(state): str(n) for state, n in counts.items()})
    return entries


def _section(
    name: str, entries: Mapping[_Place, str], inherited: Mapping[_Place, str]
) -> Iterator[str]:
    """Yield the entries that differ from the inherited ones; ``null`` removes one of these."""
    both = (place for place in entries.keys() | inherited.keys() if place[0] == name)
    changed = sorted(place for place in both if entries.get(place) != inherited.get(place))
    yield f"{name}:" if changed else f"{name}: {{}}"
    existing = {place[:depth] for place in entries for depth in range(2, len(place) + 1)}
    written = set()
    for place in changed:
        for depth in range(2, len(place) + 1):
            at, key = place[:depth], place[depth - 1]
            if at not in written:
                written.add(at)
                title = f"slot {key}" if isinstance(key, int) else _scalar(key)
                value = entries.get(at, "" if at in existing else "null")
                yield f"{'  ' * (depth - 1)}{title}: {value}".rstrip()
            if at not in existing:
                break


def _outcomes(texts: Mapping[str, str]) -> str:
    """``floating bool`` if all pass, else ``{passed: floating, no sample: bool}``."""
    if [*texts] == ["passed"]:
        return texts["passed"]
    passed_first = sorted(texts, key=lambda state: (not state.startswith("passed"), state))
    return "{" + ", ".join(f"{_scalar(state)}: {texts[state]}" for state in passed_first) + "}"


def _scalar(text: str) -> str:
    """Return a string as YAML, in quotes only where it needs them."""
    if _PLAIN.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    return yaml.safe_dump(text, default_style='"', width=float("inf")).rstrip("\n")


# Reading


def load_contract(
    path: Path, *, platform: str | None = None, simulated: bool | None = None, bases: int = 0
) -> Contract:
    """Read a contract with its base.

    ``platform`` and ``simulated``, where given, must match the contract's. ``bases`` is the length
    of the chain of bases so far.

    Raises:
        ConfigError: All findings, each with its line.
    """
    document = read_document(path)
    findings = [*document.findings]
    if document.data is None and findings:  # not YAML
        raise _contract_error(path, findings)
    reader = _ContractReader(document=document, findings=findings)
    contract = reader.read(reader.base(path, bases))
    if platform is not None and contract.platform != platform:
        reader.expected(("platform",), contract.platform, f"'{platform}', as this file is named")
    if simulated is not None and contract.simulated is not simulated:
        # A contract of a simulated device never replaces one of a real device.
        found, expected = (
            device_kind(simulated=contract.simulated),
            device_kind(simulated=simulated),
        )
        text = f"got a contract for a {found} {contract.platform}, expected one for a {expected}"
        text = f"{text} {contract.platform}; set a separate folder for each with `contracts`"
        reader.report(("simulated",), text)
    if findings:
        raise _contract_error(path, findings)
    return contract


def _contract_error(path: Path, findings: Iterable[FileFinding]) -> ConfigError:
    remedy = f"Correct it, or rewrite it with `{command('contract', path.stem)}`."
    return ConfigError(format_findings(findings, str(path)), remedy=remedy)


@dataclass
class _ContractReader:
    """Reads a document, and collects its findings."""

    document: Document
    findings: list[FileFinding]
    inherited: Suite | None = None
    """The suite of the base; the document lists the differences from it."""
    classes: dict[str, list[str]] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    """The hint for each word that is no class, as words repeat."""
    replaced: set[Location] = field(default_factory=set)
    """Places whose inherited entries are replaced or removed."""

    def base(self, path: Path, bases: int) -> ContractBase | None:
        """Load the base of the contract in ``path``, if it has one."""
        root = self.document.data
        if not isinstance(root, dict) or "base" not in root:
            return None
        name = root["base"]
        if not isinstance(name, str) or PurePosixPath(name).is_absolute():
            self.expected(("base",), name, "a contract's file, relative to this one")
        elif bases == MOST_BASES:
            self.report(("base",), f"got a chain of more than {MOST_BASES} bases")
        elif not (path.parent / name).is_file():
            self.report(("base",), f"got '{name}', expected an existing file")
        else:
            return ContractBase(name, load_contract(path.parent / name, bases=bases + 1))
        return None

    def read(self, base: ContractBase | None) -> Contract:
        self.inherited = base.contract.suite if base else None
        root = self._mapping((), self.document.data)
        for name in root:
            if name not in KEYS:
                expected = f"one of {', '.join(KEYS)}" + near_match(name, KEYS)
                self.report((name,), f"got an unknown key, expected {expected}")
        for name in KEYS:
            if name not in root and name not in OPTIONAL_KEYS:
                self.report((), f"{name}: got nothing, expected a value; this key is required")
        version = root.get("schema_version", SCHEMA_VERSION)
        if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
            self.expected(("schema_version",), version, f"1 to {SCHEMA_VERSION}")
        for name, members in self._mapping(("dtypes",), root.get("dtypes", {})).items():
            self.classes[name] = self._text(("dtypes", name), members).split()
        device, simulated = root.get("device"), root.get("simulated", False)
        suite = Suite(
            device=None if device is None else self._text(("device",), device),
            operators=self._operators(root.get("operators", {})),
            functions=self._functions(root.get("tests", {})),
            others=None,
        )
        if not isinstance(simulated, bool):
            self.expected(("simulated",), simulated, "true or false")
        platform = self._text(("platform",), root.get("platform", ""))
        torch = self._text(("torch",), root["torch"]) if "torch" in root else None
        return Contract(
            platform=platform, suite=suite, simulated=simulated is True, torch=torch, base=base
        )

    def _operators(self, value: object) -> dict[OperatorTest, State]:
        found: dict[OperatorTest, State] = {}
        for function, slots in self._entries(("operators",), value):
            place: Location = ("operators", function)
            for key, overloads in self._entries(place, slots):
                number = re.fullmatch(r"slot (0|[1-9]\d*)", key, re.ASCII)
                if number is None:
                    self.report((*place, key), f"got '{key}', expected a slot, such as 'slot 8'")
                slot = int(number[1]) if number else 0
                for overload, dtypes in self._entries((*place, key), overloads):
                    for variant, state in self._variants((*place, key, overload), dtypes):
                        found[OperatorTest(function, slot, overload, variant)] = state
        inherited = self.inherited.operators if self.inherited else {}
        for test, state in inherited.items():
            place = ("operators", test.function, f"slot {test.slot}", test.overload)
            if self.replaced.isdisjoint(place[:depth] for depth in (2, 3, 4)):
                found[test] = state
        return found

    def _variants(self, place: Location, value: object) -> Iterator[tuple[str, State]]:
        seen: set[str] = set()
        for at, state, dtypes in self._states(place, value):
            if state == State(Outcome.SKIPPED):
                self.report(at, "got 'skipped', expected the skip reason")
            for word in self._text(at, dtypes).split():
                hint = self._near_class(word.rpartition("-")[2])
                if hint or not is_variant(word):
                    text = (
                        f"got '{word}', expected dtypes or classes of dtypes, with spaces between"
                    )
                    self.report(at, text + hint)
                for variant in expand_variants(word, self.classes):
                    if variant in seen:
                        self.report(at, f"got '{variant}' twice, expected it once")
                    seen.add(variant)
                    yield variant, state

    def _near_class(self, dtype: str) -> str:
        """Return the hint for a misspelled class; other words may be future or vendors' dtypes."""
        if dtype not in self.hints:  # float is 0.77 of floating
            known = dtype in self.classes
            self.hints[dtype] = "" if known else near_match(dtype, self.classes, cutoff=0.8)
        return self.hints[dtype]

    def _entries(self, place: Location, value: object) -> Iterator[tuple[str, object]]:
        """Yield the items of a mapping.

        ``null`` removes an entry of the base. Without a base it is a missing value.
        """
        for name, item in self._mapping(place, value).items():
            at = (*place, name)
            if item is None and self.inherited is not None and not self._has_finding(at):
                self.replaced.add(at)
                yield name, {}
            else:
                yield name, item

    def _functions(self, value: object) -> dict[str, Counter[State]]:
        found: dict[str, Counter[State]] = {}
        for function, outcomes in self._entries(("tests",), value):
            states: Counter[State] = Counter()
            for at, state, count in self._states(("tests", function), outcomes):
                if state.needs is not None:
                    text = "got an outcome by processor, which only operator tests can have"
                    self.report(at, text)
                elif type(count) is int and count > 0:
                    states[state] = count
                else:
                    self.expected(at, count, "a number of tests")
            if states:
                found[function] = states
        old = self.inherited.functions if self.inherited else {}
        return found | {n: old[n] for n in old if ("tests", n) not in self.replaced}

    def _states(self, place: Location, value: object) -> Iterator[tuple[Location, State, object]]:
        """Yield the value of each outcome; a value alone belongs to the tests that pass."""
        if value == {} and place not in self.replaced:
            self.expected(place, value, "at least one outcome")
        self.replaced.add(place)
        if not isinstance(value, dict):
            yield place, OUTCOMES["passed"], value
            return
        for name, item in value.items():
            at = (*place, name)
            state = OUTCOMES.get(name)
            needs = name.removeprefix(PASSED_WITH)
            if needs != name and _NEEDS.fullmatch(needs):
                state = State(Outcome.PASSED, needs=needs)
            if state is None and not known_reason(name):
                known = [*OUTCOMES, *SKIP_REASONS]
                text = f"got '{name}', expected an outcome or a skip reason: {', '.join(known)}"
                self.report(at, text + near_match(name, known))
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

    def expected(self, place: Location, value: object, what: str) -> None:
        if not self._has_finding(place):
            got = "nothing" if value is None or value == "" else repr(value)
            self.report(place, f"got {got}, expected {what}")

    def _has_finding(self, place: Location) -> bool:
        """Whether a place already has a finding, which may be why its value is missing."""
        return any(finding.location == place for finding in self.findings)

    def report(self, place: Location, text: str) -> None:
        line = self.document.line_of(place)
        self.findings.append(FileFinding(line=line, location=place, text=text))


# A contract from a run


RUN_AGAIN = "Run the platform again, and write the contract from a complete run."


def make_contract(
    run: RunResult,
    platform: str,
    results: Path,
    *,
    config: str | None,
    before: Contract | None = None,
    base: ContractBase | None = None,
) -> tuple[Contract, str]:
    """Return the contract of a run, and its text.

    The contract lists the differences from ``base``. Conditions for other processors in ``base``
    and in ``before``, the contract so far, are kept.

    Raises:
        UsageError: The run did not finish, its tests ran on another device or platform, or some
            of them failed.
    """
    result = run.platform(platform)
    folder = results / run.run_id / platform
    log = ResultFiles(folder=folder).log
    if log is None:
        raise UsageError(f"{folder} has no per-test log", remedy=RUN_AGAIN)
    simulated = result.simulated
    check_recordable(
        log,
        platform=platform,
        product=result.verdict.product,
        simulated=simulated,
        selected=result.selected,
        run=f"run {run.run_id}",
        config=config,
    )
    suite = _keep_conditions(log, [it.suite for it in (before, base and base.contract) if it])
    torch = result.facts("packages").get("torch")
    contract = Contract(
        platform=platform,
        suite=suite,
        simulated=simulated,
        torch=torch if isinstance(torch, str) else None,
        base=base,
    )
    return contract, contract_text(contract, config=config, date=run.started_at)


def check_recordable(
    log: PytestLog,
    *,
    platform: str,
    product: Product,
    simulated: bool,
    selected: object,
    run: str,
    config: str | None,
) -> None:
    """Raise ``UsageError`` if no contract can be made from a run.

    ``selected`` are the operators that the run was narrowed to; falsy: all. ``run`` and ``config``
    are for the message: the run's name, and its configuration if it is not the default one.
    """
    if selected:
        message = f"{run} has only selected operators: {selected}"
        option = f" --config {shlex.quote(config)}" if config else ""
        remedy = f"Run all operators first: python -m ci run {platform}{option} --select all"
        raise UsageError(message, remedy=remedy)
    # A session that ended early is incomplete even with exit status 0.
    if not product.is_final or not is_complete(log):
        raise UsageError(f"the tests of {platform} did not finish in {run}", remedy=RUN_AGAIN)
    device = PLATFORMS[platform].torch_device
    if wrong := mismatches(log, platform=platform, torch_device=device, simulated=simulated):
        raise UsageError(f"{run} was not on {platform}: {wrong[0]}", remedy=RUN_AGAIN)
    _check_suite(suite_of(log.tests))


def _keep_conditions(log: PytestLog, known_suites: Sequence[Suite]) -> Suite:
    """Return the suite of a run with conditions, so that it holds on any processor.

    A test that skipped because instructions are missing is expected to pass with them. Conditions
    from other processors are kept, even if this run passes without them.
    """
    suite = suite_of(log.tests)
    needs = {
        suite_name(test.node_id, suite.device): test.operator.needs
        for test in log.tests
        if test.operator is not None and test.operator.needs is not None
    }
    operators = dict(suite.operators)
    for name, state in suite.operators.items():
        states = (it.operators[name] for it in known_suites if name in it.operators)
        known = next((it.needs for it in states if it.needs), None)
        if state == LACKS_INSTRUCTIONS:
            holds = known and log.processor and not log.processor.has(known)
            wanted = known if holds else needs.get(name)
            operators[name] = State(Outcome.PASSED, needs=wanted) if wanted else state
        elif known and state.outcome is Outcome.PASSED:
            operators[name] = State(Outcome.PASSED, needs=known)
    return replace(suite, operators=operators)
