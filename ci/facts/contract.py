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
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ci.errors import ConfigError
from ci.facts.operators import known_reason
from ci.facts.suite import expand_variants, is_variant
from ci.model.outcomes import SKIP_REASONS, OperatorTest, Outcome, State, Suite
from ci.model.results import device_kind
from ci.util.invocation import command
from ci.util.text import near_match
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
