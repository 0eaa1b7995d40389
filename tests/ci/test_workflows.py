"""The workflows of this repository: few rights, no secret for a fork, and one status for all."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci.model.platforms import PLATFORMS
from ci.report.jobs import TEMPLATE

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return loaded


FILES = (".github/workflows/ci.yml", ".gitlab-ci.yml", ".gitlab/platforms.yml")
GITHUB, GITLAB, CHILD = map(load, FILES)
JOBS: dict[str, dict[str, Any]] = GITHUB["jobs"]


def steps(*names: str) -> Iterator[dict[str, Any]]:
    """All steps, or those with a key of ``names``."""
    for job in JOBS.values():
        for step in job["steps"]:
            if not names or any(name in step for name in names):
                yield step


def test_a_fork_gets_no_secret_and_no_machine_of_a_vendor() -> None:
    events = GITHUB[True]  # YAML 1.1 reads the key `on` as a truth value
    assert set(events) == {"push", "pull_request", "merge_group", "workflow_dispatch"}
    assert "secrets" not in (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    [plan] = [step for step in JOBS["plan"]["steps"] if "env" in step]
    assert plan["env"]["SITE"].startswith("${{ !github.event.pull_request.head.repo.fork && vars.")


def test_only_the_job_that_comments_may_write() -> None:
    assert GITHUB["permissions"] == {"contents": "read"}
    rights = {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job}
    assert rights == {"result": {"contents": "read", "pull-requests": "write"}}
    tokens = [step["name"] for step in steps() if "github.token" in str(step)]
    assert tokens == ["Comment on the pull request"]


def test_every_action_is_a_commit_with_its_release() -> None:
    """A tag can be moved to another commit."""
    text = (ROOT / FILES[0]).read_text(encoding="utf-8")
    used = re.findall(r"uses: (.*)", text)
    assert len(used) == len([*steps("uses")]) > 0
    pinned = re.compile(r"actions/[a-z-]+(/[a-z]+)?@[0-9a-f]{40}  # v\d+\.\d+\.\d+")
    assert [it for it in used if not pinned.fullmatch(it)] == []
    releases = {tuple(re.sub("(actions/[a-z-]+)[^@]*", r"\1", it).split("@")) for it in used}
    assert len(releases) == len({action for action, _ in releases})  # one release of each


def test_no_text_of_a_stranger_is_part_of_a_command() -> None:
    """A branch may be named `$(rm -rf .)`: expressions are values of variables only."""
    assert [step["run"] for step in steps("run") if "${{" in step["run"]] == []
    assert [step for step in steps("run") if "--trust" in step["run"]] == []  # from variables


def test_one_status_waits_for_every_job() -> None:
    result = JOBS["result"]
    assert set(result["needs"]) == set(JOBS) - {"result"}
    assert result["if"] == "always()"  # GitHub counts a skipped job as a success
    [decide] = [step for step in result["steps"] if step.get("run", "").endswith("--check")]
    assert decide["if"] == "${{ !cancelled() }}"
    assert ".include.*.platform" in result["env"]["EXPECTED"]
    assert JOBS["build"]["strategy"]["fail-fast"] is False


EMPTY = '{"include": []}'
SOME = '{"include": [{"platform": "ascend", "runner": ["npu"]}]}'


@pytest.mark.parametrize(
    ("changed", "matrix", "refused"),
    [
        ({}, SOME, None),
        ({"build": "skipped"}, EMPTY, None),
        ({"build": "skipped"}, SOME, "build: skipped"),
        ({"build": "failure"}, SOME, "build: failure"),
        ({"lint": "failure", "tests": "cancelled"}, SOME, "lint: failure, tests: cancelled"),
        ({"build-cpu": "skipped"}, EMPTY, "build-cpu: skipped"),
        ({"plan": "failure", "build": "skipped"}, None, "plan: failure, build: skipped"),
        ({"plan": "cancelled", "build": "skipped"}, None, "plan: cancelled, build: skipped"),
    ],
)
def test_the_status_is_red_unless_every_job_succeeded(
    changed: dict[str, str], matrix: str | None, refused: str | None
) -> None:
    result = JOBS["result"]
    last = result["steps"][-1]
    assert last["if"] == "always()"
    assert last["env"] == {"NEEDS": "${{ toJSON(needs) }}"}
    default = re.search(r"\|\| '(.*?)' }}", result["env"]["MATRIX"])
    assert default
    results = dict.fromkeys(result["needs"], "success") | changed
    needs = {name: {"result": it, "outputs": {}} for name, it in results.items()}
    done = subprocess.run(
        ["bash", "-e", "-c", last["run"]],
        env={**os.environ, "NEEDS": json.dumps(needs), "MATRIX": matrix or default[1]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) is (refused is None)
    wanted = f"expected success of every job, got {refused}\n" if refused else ""
    assert done.stderr == wanted


def test_every_job_has_a_time_limit() -> None:
    assert [name for name, job in JOBS.items() if not job.get("timeout-minutes")] == []


def test_vendors_run_where_their_labels_say_and_others_on_hosted_runners() -> None:
    hosted = {name for name, job in JOBS.items() if job["runs-on"].startswith("ubuntu-")}
    assert set(JOBS) - hosted == {"build"}
    assert JOBS["build"]["runs-on"] == "${{ matrix.runner }}"
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in FILES]
    vendors = set(PLATFORMS) - {"cpu"}
    assert [name for name in vendors if any(name in text for text in texts)] == []


def test_the_page_pins_the_same_releases() -> None:
    used = re.compile(r"uses: (actions/checkout@.*)")
    page = (ROOT / "docs/forges.md").read_text(encoding="utf-8")
    workflow = (ROOT / FILES[0]).read_text(encoding="utf-8")
    assert {*used.findall(page)} == {*used.findall(workflow)}
    others = re.findall(r"uses: (?!actions/checkout)\S+?@(.*)", page)
    assert others == ["COMMIT  # v20YYMMDD-HHMMSS"]  # for the reader to fill in, and never a branch


def test_gitlab_runs_the_jobs_of_the_matrix() -> None:
    includes = GITLAB["platforms"]["trigger"]["include"]
    assert includes == [
        {"local": ".gitlab/platforms.yml"},
        {"artifact": "platforms.yml", "job": "plan"},
    ]
    assert GITLAB["platforms"]["trigger"]["strategy"] == "depend"
    assert CHILD["build-cpu"]["extends"] == TEMPLATE
    assert TEMPLATE in CHILD
    assert CHILD["result"]["script"][-1].endswith("--check")
    assert {rule["when"] for rule in CHILD["result"]["rules"]} == {"always"}


@pytest.mark.parametrize("job", ["lint", "tests"])
def test_both_forges_run_the_same_sessions(job: str) -> None:
    [command] = [step["run"] for step in JOBS[job]["steps"] if "noxfile.py" in step.get("run", "")]
    assert GITLAB[job]["script"] == [command]
