"""``python -m ci completion``: the real shells, with its scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ci.commands.completion import SHELLS
from ci.model.platforms import PLATFORMS
from ci.util.invocation import INSTALLED_NAME, REPOSITORY
from tests.e2e.pane import Pane

# Each starts without the user's files, and loads the script as the help says.
STARTS = {
    "bash": ("bash --norc --noprofile -i", 'eval "$(infini-ci completion bash)"'),
    "zsh": ("zsh -f -i", 'autoload compinit; compinit -D; eval "$(infini-ci completion zsh)"'),
    "fish": ("fish --no-config -i", "infini-ci completion fish | source"),
}
PROGRAM_TEXT = f"""\
#!{sys.executable}
import sys
sys.path.insert(0, {str(REPOSITORY)!r})
from ci.__main__ import start
sys.exit(start())
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose files may not be run, with two runs, and the program on PATH."""
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / INSTALLED_NAME
    program.write_text(PROGRAM_TEXT)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("INFINI_CI_RESULTS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    for run, file in (("20261101-a", "request.json"), ("20261102-b", "results.json")):
        (folder / "results" / run).mkdir(parents=True)
        (folder / "results" / run / file).write_text("{}")
    (folder / "results" / "dashboard").mkdir()
    (folder / "settings.yaml").write_text("")
    for trap in (INSTALLED_NAME, "ci.py", "argcomplete.py", "sitecustomize.py"):
        (folder / trap).write_text("#!/bin/sh\ntouch trapped\n")
        (folder / trap).chmod(0o755)
    return folder


def asking(line: str, answers: Path | str) -> dict[str, str]:
    """The environment in which a shell asks the program about a line."""
    return {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answers),
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("re", ["report", "rerun", "rerun-alarm"]),
        ("run --dr", ["--dry-run"]),
        ("run --engine ", ["auto", "docker", "host", "podman", "ray"]),
        ("run cpu --trust=b", ["--trust=branch"]),
        ("run cpu n", ["nvidia"]),
        ("run ", sorted(PLATFORMS)),
        ("report --format m", ["markdown"]),
        ("report ", ["20261102-b", "20261101-a"]),
        ("rerun latest m", ["metax", "moore"]),
        ("shell --results elsewhere ", [""]),
        ("run --config se", ["settings.yaml"]),
        ("run --source ", ["results/"]),
        ("run --select ", [""]),
        ("export --table ru", ["runs"]),
        ("completion ", [*SHELLS]),
        ("nonsense --", ["--help"]),
    ],
)
def test_what_can_follow(place: Path, typed: str, expected: list[str]) -> None:
    answers = place.parent / "answers"
    subprocess.run(
        [INSTALLED_NAME], cwd=place, env=asking(f"{INSTALLED_NAME} {typed}", answers), check=True
    )
    assert answers.read_text().split("\n") == expected


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("program", [INSTALLED_NAME, f"./{INSTALLED_NAME}"])
def test_a_shell_completes(place: Path, shell: str, program: str) -> None:
    """Also for a file of the repository, which is not run."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    start, load = STARTS[shell]
    # Opening it again makes the terminal the one that controls the shell, which fish needs.
    command = ["sh", "-c", f'exec {start} <"$(tty)"']
    with Pane(command, cwd=place, columns=100) as pane:
        pane.type(f"{load}; echo load''ed\r")
        pane.read_until(lambda rows: "loaded" in rows)
        pane.type(f"{program} run nv\t--conf\tset\t")
        expected = f"{program} run nvidia --config settings.yaml"
        pane.read_until(lambda rows: any(row.endswith(expected) for row in rows))
    assert not (place / "trapped").exists()


def test_completing_imports_no_command() -> None:
    """They take up to a second."""
    command = [sys.executable, "-X", "importtime", "-m", "ci"]
    environment = asking(f"{INSTALLED_NAME} run nv", os.devnull)
    ended = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    )
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "ci.commands.completion" in loaded
    assert {"ci.cli", "ci.commands.run", "docker", "pydantic", "rich", "yaml"}.isdisjoint(loaded)
