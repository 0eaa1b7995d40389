"""The lint's word list: each phrase is searched for as a whole."""

from __future__ import annotations

import re
import tomllib

from ci.util.invocation import REPOSITORY


def test_every_word_and_phrase_is_searched_for() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["codespell"]
    [own] = [name for name in settings["dictionary"].split(",") if name != "-"]
    lines = (REPOSITORY / own).read_text(encoding="utf-8").splitlines()
    entries = [line.partition("->")[0] for line in lines]
    assert "told" in entries  # codespell:ignore
    assert "hangs on" in entries  # codespell:ignore
    for entry in entries:
        assert re.findall(settings["regex"], f"It {entry} here.") == ["It", entry, "here"]
