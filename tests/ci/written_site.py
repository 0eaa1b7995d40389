"""The dashboard of a stored history, and what its files say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ci.facts.sentences.on_stages import PENDING
from ci.facts.verdict import not_run
from ci.model.verdicts import Product
from tests.ci.made_results import made_verdict
from tests.ci.stored_history import Project, result

FAILED = made_verdict(Product.FAILED, "a test failed")


def write(project: Project, *words: str) -> tuple[int, Path]:
    """The exit code, and the folder of the dashboard."""
    site = project.folder / "site"
    arguments = ("--output", str(site), "--source", str(project.source), *words)
    return project.ci("dashboard", *arguments)[0], site


def begin(project: Project) -> tuple[Path, str]:
    """Store what a run has after its first platform; return its folder and its id."""
    pending = result(platform="moore").model_copy(
        update={"verdict": not_run(PENDING), "pytest": None, "stages": ()}
    )
    run_id = project.run(project.commit(), result(), pending)
    folder = project.results / run_id
    folder.mkdir()
    return folder, run_id


def data(site: Path, name: str) -> Any:
    """What a data file passes to the script."""
    content = (site / "data" / f"{name}.js").read_text(encoding="utf-8")
    match = re.fullmatch(r"dashboard\.data\(\.\.\.(.*)\);\n", content, re.DOTALL)
    assert match
    [own, value] = json.loads(match[1])
    assert own == name
    return value
