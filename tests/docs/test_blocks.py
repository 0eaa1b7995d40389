"""Every command that the pages show works, or a comment says why it is not run here.

The blocks run page by page and in order, in one copy of the working tree, whose results have a
history of runs: see ``checkout``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bench.generated_history import Scale, history
from ci.model.details import Details
from ci.model.outcomes import Outcome
from ci.model.results import RunResult, StageResult
from ci.model.verdicts import Product
from ci.plan.lineage import read_lineage
from ci.store.folder import default_url, link_latest
from ci.store.store import Store
from tests.built import copy_checkout
from tests.docs.blocks import Block, blocks
from tests.docs.reference import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
BLOCKS = [block for page in PAGES for block in blocks(page, ROOT)]
TIMEOUT_S = 1800  # of what is marked complete; the others take seconds
# Of the history: from one run on there are two more units to compile.
RUNS, STEP, NEW = 24, 14, ("conv", "attention")
TAGS = {5: "v1.1", 11: "v1.2"}
FIRST = datetime(2026, 11, 6, 10, 15, tzinfo=UTC)  # and one each day
SHELLS = {"bash", "console", "shell", "shell-session", "zsh"}


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    command = ["git", *who, *arguments]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone as a reader has it: branch main, two tags, and the results of 24 runs."""
    folder = tmp_path_factory.mktemp("checkout") / "infini-ops"
    copy_checkout(folder)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    made = next(history(Scale(runs=1, tests=160, platforms=("cpu", "ascend"))))
    with Store(default_url(folder / "results")) as store:
        for index in range(RUNS):
            git(folder, "commit", "--quiet", "--allow-empty", "--message", f"Change {index}")
            if tag := TAGS.get(index):
                git(folder, "tag", tag)
            commit = git(folder, "rev-parse", "HEAD")
            run, details = run_of(made, index, commit)
            run = run.model_copy(update={"lineage": read_lineage(folder, commit, {})})
            store.save(run, details)
            results = folder / "results" / run.run_id
            results.mkdir(parents=True)
            (results / "results.json").write_text(run.to_json(), encoding="utf-8")
            link_latest(results)
    return folder


def run_of(
    made: tuple[RunResult, dict[str, Details]], index: int, commit: str
) -> tuple[RunResult, dict[str, Details]]:
    """The run of a day: ``made`` with times and a build of its own, and tests that all pass."""
    started = FIRST + timedelta(days=index)
    noise = 1 + 0.002 * (index * 7 % 5 - 2)
    rows, details = [], {}
    for row in made[0].platforms:
        kept = made[1][row.platform]
        assert kept.build
        assert row.build
        assert row.build.compile_s
        assert row.pytest
        added = row.build.compile_s / 5 if index >= STEP else 0.0
        units = list(kept.build.units)
        if added:
            units += [
                replace(units[0], output=f"src/cpu/{name}.cc.o", seconds=added / 2) for name in NEW
            ]
        stages = [
            _longer(stage, noise, added if stage.name == "install" else 0.0) for stage in row.stages
        ]
        total = sum(stage.seconds or 0 for stage in stages if stage.in_total)
        pytest_s = stages[-1].seconds or 0
        build = {
            "compile_s": (row.build.compile_s + added) * noise,
            "translation_units": len(units),
        }
        tests = [
            replace(test, outcome=Outcome.PASSED, reason=None) if test.outcome.bad else test
            for test in kept.tests
        ]
        passed = sum(test.outcome is Outcome.PASSED for test in tests)
        summary = f"{passed} passed, {len(tests) - passed} skipped in {row.pytest.seconds:.2f}s"
        changes = {
            "stages": tuple(stages),
            "pytest_s": pytest_s,
            "build_install_s": total - pytest_s,
            "total_s": total,
            "build": row.build.model_copy(update=build),
            "pytest": row.pytest.model_copy(
                update={"passed": passed, "failed": 0, "summary": summary}
            ),
            "verdict": row.verdict.model_copy(update={"product": Product.PASSED}),
        }
        rows.append(row.model_copy(update=changes))
        details[row.platform] = Details(tests=tests, build=replace(kept.build, units=tuple(units)))
    update = {
        "run_id": f"{started:%Y%m%dT%H%M%SZ}-0123abcd-{index:04x}",
        "commit": commit,
        "started_at": started,
        "finished_at": started + timedelta(minutes=5),
        "platforms": tuple(rows),
    }
    return made[0].model_copy(update=update), details


def _longer(stage: StageResult, noise: float, added: float) -> StageResult:
    """The same stage on another day, with so many seconds more."""
    seconds, user = stage.seconds, stage.cpu_user_s
    update = {
        "seconds": seconds and (seconds + added) * noise,
        "cpu_user_s": user and (user + added) * noise,
    }
    return stage.model_copy(update=update)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """This Python's programs first; no settings of this machine, and caches of its own."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("INFINI_")}
    programs = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    cache = str(tmp_path_factory.mktemp("cache"))
    return {**kept, "PATH": programs, "XDG_CACHE_HOME": cache, "COLUMNS": "120"}


def slow(block: Block) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.complete,) if block.complete else ()


@pytest.mark.parametrize(
    "block",
    [pytest.param(each, id=each.name, marks=slow(each)) for each in BLOCKS if not each.not_run],
)
def test_a_block_works(block: Block, checkout: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["sh", "-eu"],
        input=block.commands,
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == block.exit_code, f"{block.commands}\n{done.stdout}"


def test_blocks_of_commands_have_one_name() -> None:
    languages = {
        f"{page.name}: {language}"
        for page in PAGES
        for language in re.findall(r"^ *```([\w-]+)$", page.read_text(encoding="utf-8"), re.M)
        if language in SHELLS
    }
    assert languages == set(), "name them sh, or text where output is shown too"


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_a_block_says_one_thing_of_itself(block: Block) -> None:
    assert block.commands.strip()
    assert not (block.not_run and (block.complete or block.exit_code))
    reason = block.not_run or block.complete
    assert reason is None or len(reason.split()) > 1, f"{block.name}: {reason!r} is no reason"


def test_a_block_with_its_comments(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Text.\n\n<!-- complete: builds all -->\n<!-- exit code: 4 -->\n```sh\ntrue\nfalse\n```\n"
        "* In a list:\n\n  <!-- not run: needs a device -->\n  ```sh\n  ls\n  ```\n"
        "```text\n$ ls\n```\n```sh\npwd\n```\n",
        encoding="utf-8",
    )
    found = Block(page="page.md", line=6, commands="true\nfalse\n")
    assert list(blocks(page, tmp_path)) == [
        replace(found, complete="builds all", exit_code=4),
        replace(found, line=13, commands="ls\n", not_run="needs a device"),
        replace(found, line=19, commands="pwd\n"),
    ]
