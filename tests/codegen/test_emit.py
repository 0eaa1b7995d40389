"""What the templates say."""

from __future__ import annotations

from pathlib import Path

from codegen.emit import render_slot_header


def test_the_slot_header_is_up_to_date(root: Path) -> None:
    committed = (root / "src" / "include" / "infini" / "ops" / "slot.h").read_text()
    assert committed == render_slot_header(), "run `python -m codegen slots`"
