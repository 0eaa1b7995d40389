"""docs/forges.md: its examples have the form of their CI system, and commands that exist."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import cli
from ci.commands.publishing import Form
from ci.model.verdicts import Product
from ci.plan.load import load_site
from ci.report.forge import marker
from ci.report.jobs import JobForm
from ci.util import process
from ci.util.invocation import REPOSITORY
from tests.ci.made_results import made_verdict
from tests.ci.stored_history import Project, result

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "forges.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [
        "".join(line[len(indent) :] for line in text.splitlines(keepends=True))
        for indent, name, text in FENCE.findall(PAGE)
        if name == language
    ]


SITE, GITHUB, GITEA, GITLAB, BUILDKITE, RELAY = map(yaml.safe_load, blocks("yaml"))


def commands() -> list[list[str]]:
    """The words after `python -m ci` of every command on the page."""
    found = re.findall(
        r"python -m ci ([^>'#\n|]+)", "\n".join(text for *_, text in FENCE.findall(PAGE))
    )
    return [text.split() for text in found]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_its_commands_exist(words: list[str]) -> None:
    assert cli._parse_options(words).execute


def test_its_site_file_is_valid(tmp_path: Path) -> None:
    (tmp_path / "ci.site.yaml").write_text(yaml.safe_dump(SITE))
    site = load_site(tmp_path / "ci.site.yaml")
    assert site.platforms["nvidia"].runner_labels == ("self-hosted", "a100")


def test_its_examples_build_a_platform_and_show_it() -> None:
    session = "python3 noxfile.py -s build-cpu"
    job: dict[str, Any] = GITHUB["jobs"]["cpu"]
    assert GITHUB["permissions"] == {"contents": "read"}
    assert job["steps"][-1]["run"] == session
    assert "--format gitea > comment.md" in GITEA[0]["run"]
    assert GITLAB["cpu"]["script"] == [session]
    assert GITLAB["cpu"]["artifacts"]["reports"] == {"junit": "junit.xml"}
    assert BUILDKITE["steps"][0]["command"] == session
    [jenkins] = blocks("groovy")
    assert all(jenkins.count(left) == jenkins.count(right) for left, right in ("{}", "()", "[]"))


@pytest.mark.parametrize("broken", [False, True])
def test_its_step_passes_the_relay_what_a_report_has(tmp_path: Path, broken: bool) -> None:
    """The step runs as a runner of GitHub runs it; each input of the action is one line."""
    if shutil.which("jq") is None:
        pytest.skip("no jq")
    project = Project(folder=tmp_path)
    verdict = made_verdict(Product.FAILED, "a\nmessage of 'two' lines: $(exit 1)")
    project.run(project.commit(), result(verdict=verdict) if broken else result())
    step, callback = RELAY
    script = step["run"].replace(".nox/ci/bin/python", sys.executable)
    output = tmp_path / "output"
    where = {"GITHUB_OUTPUT": str(output), "PYTHONPATH": str(REPOSITORY)}
    process.run(["bash", "-e", "-c", script], cwd=tmp_path, environment={**os.environ, **where})
    lines = dict(line.split("=", 1) for line in output.read_text().splitlines())
    passed = {name for name, value in callback["with"].items() if "steps.crcr" in value}
    assert passed == lines.keys()
    assert lines["conclusion"] == ("failure" if broken else "success")
    assert json.loads(lines["test-results"])["passed"] == 1
    assert json.loads(lines["failed-tests-detail"]) == []
    if broken:
        assert json.loads(lines["triage-verdict"])["category"] == "backend"
    else:
        assert lines["triage-verdict"] == ""


def test_it_names_every_format() -> None:
    table = PAGE.partition("## What a job shows")[2].partition("##")[0]
    assert [form for form in Form if f"`{form}`" not in table] == []
    assert [form for form in JobForm if f"--format {form}" not in PAGE and form != "json"] == []
    assert marker("PROJECT") in PAGE
