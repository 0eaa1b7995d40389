"""The simulated searches of ``bisect``: their table is the one that users read."""

from __future__ import annotations

from bench.bisection import table
from bench.context import ROOT

PAGE = "docs/track-build-cost.md"


def test_the_page_has_the_table() -> None:
    made = "\n".join(table())
    assert f"\n{made}\n" in (ROOT / PAGE).read_text(encoding="utf-8"), (
        f"copy what `python -m bench.bisection` prints into {PAGE}"
    )
