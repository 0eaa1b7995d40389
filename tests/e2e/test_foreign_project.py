"""docs/drive-another-project.md: its configurations are valid, and one of them runs a project."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from plans import PROJECT

from ci import cli
from ci.plan.load import load_config
from ci.util.prerequisites import package_manager

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "drive-another-project.md").read_text(encoding="utf-8")
GREETING = "\n      GREETING: good morning\n"  # the requirement of the tiny project


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def requirements() -> str:
    [text] = [block for block in blocks("text") if block.startswith("pytest\n")]
    return text


def test_its_configurations_are_valid(tmp_path: Path) -> None:
    configs = []
    for text in blocks("yaml"):
        (tmp_path / "ci.yaml").write_text(text, encoding="utf-8")
        configs.append(load_config(tmp_path / "ci.yaml"))
        assert [stage.name for stage in configs[-1].stages] == ["install", "pytest"]
    _, more, packages, by_distribution = configs
    assert more.platforms["cpu"].requirements in PAGE.split("`")
    assert packages.system_packages == ("less",)
    assert by_distribution.platforms["cpu"].system_packages


def test_its_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [shlex.split(line)[3:] for line in lines if line.startswith("python -m ci ")]
    assert {command[0] for command in commands} == {"run", "bundle", "gc"}
    for command in commands:
        with pytest.raises(SystemExit, match=r"^0$"):
            cli.main([command[0], "--help"])
        shown = capsys.readouterr().out
        assert [word for word in command if word.startswith("--") and word not in shown] == []


def test_a_project_with_its_files(tmp_path: Path) -> None:
    project = tmp_path / "project"
    config = blocks("yaml")[1].replace("\n    environment:\n", "\n    environment:" + GREETING)
    config += "system_packages: [no-such-package]\n"
    files = {**PROJECT, "ci.yaml": config, "requirements-ci.txt": requirements()}
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "ci", "run", "cpu", "--engine", "host", "--source", project]
    finished = subprocess.run(
        [*command, "--results", tmp_path / "results"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1, finished.stderr  # one of the tests fails
    results = json.loads((tmp_path / "results" / "latest" / "results.json").read_text())
    [row] = results["platforms"]
    assert (row["label"], row["built"]) == ("CPU (C extension)", True)
    assert (row["pytest"]["passed"], row["pytest"]["failed"]) == (2, 1)
    [note] = [note for note in row["notes"] if "system_packages" in note]
    assert re.search(rf"{package_manager()} install .* no-such-package'?$", note)
    assert not [note for note in row["notes"] if "cache" in note]
    assert sorted(path.name for path in project.iterdir()) == sorted(
        {name.split("/")[0] for name in files}
    )
