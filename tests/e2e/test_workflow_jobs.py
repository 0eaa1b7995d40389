"""The commands of this repository's workflows, run job by job against a tiny project.

A checkout has the program and a small ci.yaml. What a CI system adds is played here: variables,
artifacts, and the programs `gh` and `nox`. The runs are real, on the host engine.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import parse

import pytest
import yaml

from ci.errors import ExitCode
from ci.store.folder import read_results
from tests.cases import narrowed
from tests.e2e.plans import LAUNCHER

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ("ci", "codegen", "docker", ".github", ".gitlab", ".gitlab-ci.yml", ".gitignore")
CONFIG = """\
project: tiny
platforms:
  cpu: {}
  ascend: {simulated: true}
  moore: {simulated: true}
stages:
- {name: build, command: python -c pass}
- {name: pytest, kind: pytest, command: python -m pytest -q tests}
"""
SUITE = """\
import os


def test_device():
    assert os.environ["INFINI_CI_PLATFORM"] != "ascend", "no @everyone on <ascend>"
"""
SITE = """\
platforms:
  cpu: {engine: host}
  ascend: {engine: host, runner_labels: [self-hosted, npu]}
  moore: {engine: host, runner_labels: [moore]}
"""
# Stands for the interpreter of a runner: installed packages are those of the tests, and a session
# of nox is the command that it starts.
PYTHON = """\
#!/bin/sh
case "$*" in
  "-m pip install "*) exit 0 ;;
  "noxfile.py -s build-"*) exec {launcher} run "${{3#build-}}" ;;
esac
exec {python} "$@"
"""
# Answers as GitHub's does, with the comments that are in a file.
GH = """\
#!{python}
import json, pathlib, sys

folder = pathlib.Path(__file__).parent
with (folder / "gh.log").open("a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
if "--jq" in sys.argv and (folder / "comment").exists():
    print((folder / "comment").read_text())
"""


@dataclass
class Runner:
    """A machine of a CI system, with a checkout."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def checkout(self) -> Path:
        return self.folder / "checkout"

    def program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(self, commands: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the commands of a step in a shell that stops at a failure, as CI systems do."""
        kept = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("INFINI_", "GITHUB_"))
        }
        path = {"PATH": f"{self.folder / 'bin'}{os.pathsep}{kept['PATH']}"}
        return subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=self.checkout,
            env={**kept, **path, **self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=600,
        )


def steps(jobs: Mapping[str, Any], job: str) -> Iterator[tuple[str, str]]:
    """The name and the commands of each step of a job that runs some."""
    for step in jobs[job]["steps"]:
        if "run" in step:
            yield step.get("name", ""), step["run"]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory, python: str) -> Runner:
    folder = tmp_path_factory.mktemp("runner")
    found = Runner(folder)
    for name in PROGRAM:
        source, target = ROOT / name, found.checkout / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    for name, text in {"ci.yaml": CONFIG, "tests/test_a.py": SUITE}.items():
        (found.checkout / name).parent.mkdir(exist_ok=True)
        (found.checkout / name).write_text(text)
    git = "git -c user.name=a -c user.email=a@b.c -c init.defaultBranch=main"
    commands = f"git -c init.defaultBranch=main init -q; git add .; {git} commit -qm All"
    subprocess.run(["bash", "-ec", commands], cwd=found.checkout, check=True)
    launcher = shlex.join([sys.executable, "-c", LAUNCHER, python])
    for name in ("python", "python3"):
        found.program(name, PYTHON.format(python=shlex.quote(sys.executable), launcher=launcher))
    found.program("gh", GH.format(python=sys.executable))
    found.environment["RUNNER_TEMP"] = str(folder)
    return found


@pytest.fixture(scope="module")
def jobs(runner: Runner) -> Mapping[str, Any]:
    loaded = yaml.safe_load((runner.checkout / ".github/workflows/ci.yml").read_text())
    found: Mapping[str, Any] = loaded["jobs"]
    return found


@pytest.fixture(scope="module")
def matrix(runner: Runner, jobs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The platforms that the job `plan` gives to the next jobs."""
    output = runner.folder / "output"
    for _, commands in steps(jobs, "plan"):
        done = runner.run(commands, SITE=SITE, GITHUB_OUTPUT=str(output))
        assert done.returncode == 0, done.stderr
    name, _, value = output.read_text().partition("=")
    assert name == "matrix"
    found: list[dict[str, Any]] = json.loads(value)["include"]
    return found


@pytest.fixture(scope="module")
def artifacts(
    runner: Runner, jobs: Mapping[str, Any], matrix: list[dict[str, Any]]
) -> Mapping[str, int]:
    """The exit codes of the jobs that build, whose results are in the folder of the artifacts."""
    codes = {}
    assert [it["platform"] for it in matrix] == ["ascend", "moore"]
    for job, platform in (("build-cpu", "cpu"), ("build", "ascend")):  # moore's machine is down
        for _, commands in steps(jobs, job):
            done = runner.run(
                commands, PLATFORM=platform, SITE=SITE, GITHUB_STEP_SUMMARY=str(summary(runner))
            )
            codes[platform] = done.returncode
        folder = runner.checkout / "results"
        for run in folder.glob("2*"):
            shutil.move(run, runner.folder / "artifacts" / run.name)
        shutil.rmtree(folder)
        (runner.checkout / "ci.site.yaml").unlink(missing_ok=True)
    shutil.copytree(runner.folder / "artifacts", runner.checkout / "artifacts")
    return codes


def summary(runner: Runner) -> Path:
    return runner.folder / "summary.md"


def test_the_plan_without_a_site_has_no_platform(
    runner: Runner, jobs: Mapping[str, Any], tmp_path: Path
) -> None:
    for _, commands in steps(jobs, "plan"):
        done = runner.run(commands, SITE="", GITHUB_OUTPUT=str(tmp_path / "output"))
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "output").read_text() == 'matrix={"include": []}\n'


def test_each_job_has_its_own_status_and_summary(
    runner: Runner, artifacts: Mapping[str, int]
) -> None:
    assert artifacts == {"cpu": ExitCode.PASSED, "ascend": ExitCode.PRODUCT_FAILURE}
    pages = summary(runner).read_text(encoding="utf-8")
    assert "tiny: passed on CPU" in pages
    assert "`no @everyone on <ascend>: assert" in pages


@pytest.mark.parametrize(
    ("expected", "code"),
    narrowed(
        [("cpu,ascend,moore", ExitCode.PRODUCT_FAILURE), ("cpu,", ExitCode.PRODUCT_FAILURE)], kept=1
    ),
)
def test_the_results_are_merged_into_one_table_and_one_status(
    runner: Runner, jobs: Mapping[str, Any], artifacts: Mapping[str, int], expected: str, code: int
) -> None:
    assert artifacts
    output: dict[str, str] = {}
    results = {"plan": "success", "build": "failure"}  # as GitHub describes the jobs
    needs = json.dumps({name: {"result": it, "outputs": {}} for name, it in results.items()})
    variables = {"EXPECTED": expected, "NEEDS": needs, "MATRIX": '{"include": [0]}'}
    codes = {}
    for name, commands in steps(jobs, "result"):
        done = runner.run(commands, **variables, GITHUB_REPOSITORY="a/b", NUMBER="7")
        output[name], codes[name] = done.stdout, done.returncode
        if name not in ("Decide", "Require every job"):
            assert done.returncode == 0, f"{name}: {done.stderr}"
    assert (codes["Decide"], codes["Require every job"]) == (code, 1)
    table = output["Decide"]
    assert ("CPU" in table, "Ascend" in table) == (True, True)
    assert ("Moore" in table) is ("moore" in expected)
    root = parse(runner.checkout / "junit.xml").getroot()  # noqa: S314 - written by the test
    names = (
        ["tiny.cpu", "tiny.moore", "tiny.ascend"]
        if "moore" in expected
        else ["tiny.cpu", "tiny.ascend"]
    )
    assert [it.get("name") for it in root] == names
    assert root.get("errors") == str(int("moore" in expected))
    ctrf = json.loads((runner.checkout / "ctrf.json").read_text())
    assert ctrf["results"]["summary"]["failed"] == len(names) - 1
    merged = [read_results(it) for it in runner.checkout.glob("results/2*/results.json")]
    assert sorted(len(run.platforms) for run in merged) == [1, 1]


def test_the_comment_is_updated_in_place(
    runner: Runner, jobs: Mapping[str, Any], artifacts: Mapping[str, int]
) -> None:
    assert artifacts
    log = runner.folder / "bin" / "gh.log"
    commands = dict(steps(jobs, "result"))
    variables = {"EXPECTED": "cpu", "GITHUB_REPOSITORY": "a/b", "NUMBER": "7"}
    assert runner.run(commands["Merge the results"]).returncode == 0
    assert runner.run(commands["Write the reports"], **variables).returncode == 0
    page = (runner.checkout / "comment.md").read_text(encoding="utf-8")
    assert page.startswith("<!-- infini-ci: tiny -->\n")
    made = []
    for _ in range(2):
        log.unlink(missing_ok=True)
        done = runner.run(commands["Comment on the pull request"], **variables)
        assert done.returncode == 0, done.stderr
        made.append([json.loads(line) for line in log.read_text().splitlines()])
        (runner.folder / "bin" / "comment").write_text("42\n43")
    [[_, create], [_, update]] = made
    comments = "repos/a/b/issues/7/comments"
    assert create == ["api", "--method", "POST", comments, "-F", "body=@comment.md"]
    assert update[:4] == ["api", "--method", "PATCH", "repos/a/b/issues/comments/42"]


def test_gitlab_merges_the_same_results(
    runner: Runner, artifacts: Mapping[str, int], tmp_path: Path
) -> None:
    assert artifacts
    parent = yaml.safe_load((runner.checkout / ".gitlab-ci.yml").read_text())
    child = yaml.safe_load((runner.checkout / ".gitlab" / "platforms.yml").read_text())
    (tmp_path / "site.yaml").write_text(SITE)
    shutil.rmtree(runner.checkout / "results", ignore_errors=True)
    shutil.copytree(runner.checkout / "artifacts", runner.checkout / "results")
    plan = "\n".join([*parent["plan"]["before_script"], *parent["plan"]["script"]])
    done = runner.run(plan, INFINI_CI_SITE=str(tmp_path / "site.yaml"))
    assert done.returncode == 0, done.stderr
    pipeline = yaml.safe_load((runner.checkout / "platforms.yml").read_text())
    assert set(pipeline) == {"variables", "build-ascend", "build-moore"}
    *others, decide = child["result"]["script"]
    done = runner.run("\n".join(others), **pipeline["variables"])
    assert done.returncode == 0, done.stderr
    assert "passed on CPU" in (runner.checkout / "summary.md").read_text(encoding="utf-8")
    assert runner.run(decide, **pipeline["variables"]).returncode == ExitCode.PRODUCT_FAILURE
