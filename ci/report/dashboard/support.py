"""The support matrix: which operators platforms pass, with which dtypes, as one file.

It is for a site or a release, so it needs no other file, and requests none.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ci.facts.suite import DTYPE_CLASSES, abbreviate_variants
from ci.report.capabilities import (
    CapabilityDocument,
    OverloadCapability,
    PlatformCapabilities,
    operator_name,
)
from ci.report.dashboard.html import TEMPLATES, render


@dataclass(frozen=True, kw_only=True)
class SupportCell:
    """What a platform does with an operator; all empty: the suite has no test of it."""

    passed: str
    """Dtypes and classes of dtypes that passed in at least one overload, and failed in none."""
    failed: str
    reason: str
    """Why nothing was executed: the most frequent skip reason."""
    slots: str
    """The slots on which a dtype passed; empty if the platforms use only one slot."""


@dataclass(frozen=True, kw_only=True)
class SupportColumn:
    """A platform: its sources, and the number of operators with a dtype that passes."""

    label: str
    source: str
    passed: int


@dataclass(frozen=True, kw_only=True)
class SupportRow:
    """An operator on each platform."""

    operator: str
    cells: Sequence[SupportCell]


def support_page(found: CapabilityDocument) -> str:
    """Return the page."""
    suites = [_by_operator(platform) for platform in found.platforms]
    several = len({slot for platform in found.platforms for slot in platform.slots}) > 1
    operators = sorted({operator for suite in suites for operator in suite})
    rows = [
        SupportRow(operator=it, cells=[_cell(suite.get(it, ()), several) for suite in suites])
        for it in operators
    ]
    columns = [
        SupportColumn(
            label=platform.label,
            source=_source(platform),
            passed=sum(bool(row.cells[place].passed) for row in rows),
        )
        for place, platform in enumerate(found.platforms)
    ]
    style = (TEMPLATES / "dashboard.css").read_text() + (TEMPLATES / "support.css").read_text()
    script = (TEMPLATES / "support.js").read_text()
    return render(
        "support.html.j2",
        project=found.project,
        columns=columns,
        rows=rows,
        classes={name: " ".join(dtypes) for name, dtypes in DTYPE_CLASSES.items()},
        # Files of this program. The policy of the page allows no other script.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


_Overloads = Iterable[tuple[int, OverloadCapability]]  # with their slots


def _by_operator(platform: PlatformCapabilities) -> Mapping[str, _Overloads]:
    found: dict[str, list[tuple[int, OverloadCapability]]] = {}
    for slot, overloads in platform.slots.items():
        for overload, it in overloads.items():
            found.setdefault(operator_name(overload), []).append((slot, it))
    return found


def _cell(overloads: _Overloads, several_slots: bool) -> SupportCell:
    failed = {dtype for _, it in overloads for dtype in it.failed}
    passed = {dtype for _, it in overloads for dtype in it.passed} - failed
    reasons = Counter(reason for _, it in overloads for reason in it.not_executed.values())
    slots = sorted({slot for slot, it in overloads if not failed.issuperset(it.passed)})
    return SupportCell(
        passed=abbreviate_variants(passed),
        failed=abbreviate_variants(failed),
        reason=max(sorted(reasons), key=reasons.__getitem__) if reasons else "",
        slots=", ".join(map(str, slots)) if several_slots else "",
    )


def _source(platform: PlatformCapabilities) -> str:
    torch = f"torch {platform.torch}, " if platform.torch else ""
    return torch + (f"run {platform.run_id}" if platform.run_id else "its contract")
