"""Write a contract as the content of its file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime

import yaml

from ci.errors import UsageError
from ci.facts.contract import SCHEMA_VERSION, Contract
from ci.facts.operators import known_reason
from ci.facts.sentences.on_rows import compiled_only, simulated_device
from ci.facts.suite import DTYPE_CLASSES, abbreviate_variants
from ci.model.outcomes import SKIP_REASONS, Outcome, Suite
from ci.model.results import is_compiled_only
from ci.util.text import join_names

_PLAIN = re.compile(r"(?:\.\.?/)*[A-Za-z_](?:[\w./()-]|::| (?=\w))*", re.ASCII)
# The place of an entry: section and function; for operators also slot and overload.
_Place = tuple[str | int, ...]

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
    check_suite(suite)
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


def check_suite(suite: Suite) -> None:
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
