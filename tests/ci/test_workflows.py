"""The workflows of this repository: few rights, no secret for a fork, and one status for all."""

from __future__ import annotations

import re
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
    assert set(events) == {"push", "pull_request", "workflow_dispatch"}
    assert "secrets" not in (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    [plan] = [step for step in JOBS["plan"]["steps"] if "env" in step]
    assert plan["env"]["SITE"].startswith("${{ !github.event.pull_request.head.repo.fork && vars.")


def test_only_the_job_that_comments_may_write() -> None:
    assert GITHUB["permissions"] == {"contents": "read"}
    rights = {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job}
    assert rights == {"result": {"contents": "read", "pull-requests": "write"}}
    tokens = [step["name"] for step in steps() if "github.token" in str(step)]
    assert tokens == ["Comment on the pull request"]


def test_every_action_has_a_version() -> None:
    used = [step["uses"] for step in steps("uses")]
    assert used
    assert [it for it in used if not re.fullmatch(r"actions/[a-z-]+(/[a-z]+)?@v\d+", it)] == []


def test_no_text_of_a_stranger_is_part_of_a_command() -> None:
    """A branch may be named `$(rm -rf .)`: expressions are values of variables only."""
    assert [step["run"] for step in steps("run") if "${{" in step["run"]] == []
    assert [step for step in steps("run") if "--trust" in step["run"]] == []  # from variables


def test_one_status_waits_for_every_platform() -> None:
    result = JOBS["result"]
    assert set(result["needs"]) == {"plan", "build-cpu", "build"}
    assert result["steps"][-1]["run"].endswith("--check")
    assert "needs.plan.outputs.matrix).include.*.platform" in result["env"]["EXPECTED"]
    assert JOBS["build"]["strategy"]["fail-fast"] is False


def test_every_job_has_a_time_limit() -> None:
    assert [name for name, job in JOBS.items() if not job.get("timeout-minutes")] == []


def test_vendors_run_where_their_labels_say_and_others_on_hosted_runners() -> None:
    hosted = {name for name, job in JOBS.items() if job["runs-on"].startswith("ubuntu-")}
    assert set(JOBS) - hosted == {"build"}
    assert JOBS["build"]["runs-on"] == "${{ matrix.runner }}"
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in FILES]
    vendors = set(PLATFORMS) - {"cpu"}
    assert [name for name in vendors if any(name in text for text in texts)] == []


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
