"""A project's repository, and a store of runs of its commits."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from time import monotonic_ns
from typing import Any

from ci import cli
from ci.errors import ExitCode
from ci.facts.acceptance import Acceptance, accept_level
from ci.model.details import BuildDetails, Details
from ci.model.outcomes import Outcome, TestOutcome
from ci.model.results import PlatformResult, RunResult
from ci.plan.lineage import read_lineage
from ci.store.folder import default_url
from ci.store.store import Store
from ci.util.process import run
from tests.ci.made_results import made_test
from tests.ci.published import platform_result

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
ENVIRONMENT: Mapping[str, Any] = {
    "machine": {"cpu_model": "a CPU", "cores": 2, "memory_bytes": 4 << 30},
    "compiler": "g++ 12.2",
    "engine": {"name": "host"},
}
TESTS = {"test_a.py::test_one": Outcome.PASSED, "test_a.py::test_two": Outcome.SKIPPED}


def result(
    install: float = 100.0,
    *,
    platform: str = "cpu",
    environment: Mapping[str, Any] = ENVIRONMENT,
    **changes: Any,
) -> PlatformResult:
    """A run whose install took so long, and everything else as long as ever."""
    row = (1, 1, 0, "1.00s", install, 50.0, install + 50.0)
    return platform_result(platform, row, environment=environment, **changes)


def tests(outcomes: Mapping[str, Outcome]) -> list[TestOutcome]:
    return [
        made_test(name, outcome, reason="assert <b>" if outcome.bad else None)
        for name, outcome in outcomes.items()
    ]


def acceptance(measure: str, level: float, **changes: Any) -> Acceptance:
    """An accepted rise on cpu, whose first run or commit is among the changes."""
    fields = {
        "platform": "cpu",
        "reason": "a new backend",
        "who": "a developer",
        "date": BEGIN.date(),
    }
    return accept_level(measure, level, **{**fields, **changes})


def noisy(level: float, count: int, seed: int = 1) -> list[float]:
    """Values in noise of 1 %."""
    noise = random.Random(seed)  # noqa: S311
    return [level * noise.gauss(1, 0.01) for _ in range(count)]


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    return run(["git", *who, *arguments], cwd=folder, environment=environment).stdout.strip()


@dataclass
class Project:
    """Commits, runs of them, and the command line on both."""

    folder: Path
    runs: list[str] = field(default_factory=list)

    def copy(self, folder: Path) -> Project:
        """One that may be changed: what takes long to make is made once."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return Project(folder=folder, runs=[*self.runs])

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def main(self) -> str:
        return git(self.source, "rev-parse", "main")

    def commit(self, message: str = "change") -> str:
        """Make a commit, and the repository if it does not exist yet."""
        if not self.source.exists():
            self.source.mkdir()
            git(self.source, "init", "--quiet")
        # Without a number, the first commits of two branches are one if made in the same second.
        text = f"{message}\n\n{monotonic_ns()}"
        git(self.source, "commit", "--quiet", "--allow-empty", "--message", text)
        return git(self.source, "rev-parse", "HEAD")

    def configure(self) -> None:
        """Give the project a configuration, beside which its acceptances are."""
        self.source.mkdir(exist_ok=True)
        text = "project: tiny\nplatforms: {cpu: {}}\nstages:\n"
        for name, kind in (("install", "command"), ("pytest", "pytest")):
            text += f"  - {{name: {name}, kind: {kind}, command: {name}, timeout_s: 60}}\n"
        (self.source / "ci.yaml").write_text(text, encoding="utf-8")

    def run(
        self,
        commit: str | None,
        *platforms: PlatformResult,
        outcomes: Mapping[str, Outcome] = TESTS,
        build: BuildDetails | None = None,
        **changes: Any,
    ) -> str:
        """Store a run of a commit, an hour after the one before."""
        run_id = f"run-{len(self.runs):03}"
        started = BEGIN + timedelta(hours=len(self.runs))
        fields = {
            "run_id": run_id,
            "project": "tiny",
            "commit": commit,
            "dirty": False,
            "started_at": started,
            "finished_at": started + timedelta(minutes=30),
            "engine": "host",
            "platforms": platforms or (result(),),
        }
        stored = RunResult(**{**fields, **changes})
        details = Details(tests=tests(outcomes), build=build)
        with self.open() as store:
            store.save(stored, {it.platform: details for it in stored.platforms})
        self.runs.append(run_id)
        return run_id

    def open(self) -> Store:
        return Store(default_url(self.results))

    def branch(self, name: str, start: str = "main") -> None:
        """Check a branch out, and create it if it does not exist yet."""
        known = git(self.source, "branch", "--list", name)
        git(self.source, "checkout", "--quiet", *([name] if known else ["-b", name, start]))

    def measure(self, *platforms: PlatformResult, **changes: Any) -> str:
        """Make a commit on the branch that is checked out, and store a run that records it."""
        commit = self.commit()
        lineage = read_lineage(self.source, commit, {})
        self.run(commit, *platforms, **{"lineage": lineage, **changes})
        return commit

    def measure_each(self, installs: Sequence[float]) -> list[str]:
        """The same for each of these seconds of install; returns the commits."""
        return [self.measure(result(seconds)) for seconds in installs]

    def history(self, installs: Sequence[float], **changes: Any) -> list[str]:
        """Commits, each with a run whose install took so long; returns the commits."""
        commits = []
        for seconds in installs:
            commits.append(self.commit())
            self.run(commits[-1], result(seconds, **changes))
        return commits

    def compare(self, *arguments: str) -> tuple[int, str]:
        return self.ci("compare", "--source", str(self.source), *arguments)

    def tracked(self, *arguments: str) -> tuple[int, str]:
        """The history, with the acceptances in the project's folder."""
        return self.ci("history", "cpu", "--source", str(self.source), *arguments)

    def accept(self, run: str, *arguments: str) -> tuple[int, str]:
        return self.ci("accept", "cpu", run, "--source", str(self.source), *arguments)

    def withdraw(self, name: str, *arguments: str) -> tuple[int, str]:
        return self.ci("withdraw", "cpu", name, "--source", str(self.source), *arguments)

    def ci(self, command: str, *arguments: str) -> tuple[int, str]:
        """Return the exit code and the output: stdout, or the error where that is empty."""
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = cli.main([command, "--results", str(self.results), *arguments])
            except SystemExit as end:  # argparse refuses the command line
                code = int(end.code or 0)
        return code, err.getvalue() if code == ExitCode.USAGE else out.getvalue() or err.getvalue()


def expect(answer: tuple[int, str], *texts: str, code: ExitCode = ExitCode.PASSED) -> str:
    """The output of a command, which must end with this code and contain these texts."""
    assert answer[0] == code, answer[1]
    for text in texts:
        assert text in answer[1]
    return answer[1]
