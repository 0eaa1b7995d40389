"""What the variables of CI systems state: trust level, branch, commits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ci.model.trust import Trust
from ci.plan.ci_variables import CiJob, read_ci_job

GITHUB = {"GITHUB_ACTIONS": "true", "GITHUB_REF_TYPE": "branch", "GITHUB_REF_PROTECTED": "false"}
PROTECTED = {**GITHUB, "GITHUB_REF_PROTECTED": "true"}
TAG = {**GITHUB, "GITHUB_REF_TYPE": "tag"}
PULL = {"GITHUB_HEAD_REF": "topic", "GITHUB_BASE_REF": "main"}
GITEA = {**GITHUB, "GITEA_ACTIONS": "true"}
GITLAB = {"GITLAB_CI": "true", "CI_PIPELINE_SOURCE": "push", "CI_COMMIT_REF_PROTECTED": "false"}
MERGE = {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_MERGE_REQUEST_PROJECT_ID": "7"}
EXTERNAL = {
    "CI_PIPELINE_SOURCE": "external_pull_request_event",
    "CI_EXTERNAL_PULL_REQUEST_TARGET_REPOSITORY": "team/library",
}
GITLAB_MAIN = {"CI_DEFAULT_BRANCH": "main"}
JENKINS = {"JENKINS_URL": "https://jenkins.invalid/"}
JENKINS_CHANGE = {"CHANGE_BRANCH": "topic", "CHANGE_TARGET": "main"}
BUILDKITE = {"BUILDKITE": "true", "BUILDKITE_PULL_REQUEST": "false"}
CHANGE = {
    **BUILDKITE,
    "BUILDKITE_PULL_REQUEST": "12",
    "BUILDKITE_REPO": "git@github.com:team/library.git",
}


@pytest.mark.parametrize(
    ("environ", "trust"),
    [
        ({**GITHUB, "GITHUB_EVENT_NAME": "push"}, Trust.BRANCH),
        ({**PROTECTED, "GITHUB_EVENT_NAME": "push"}, Trust.RELEASE),
        ({**TAG, "GITHUB_EVENT_NAME": "push"}, Trust.RELEASE),
        ({**GITHUB, "GITHUB_EVENT_NAME": "merge_group"}, Trust.BRANCH),
        ({**PROTECTED, "GITHUB_EVENT_NAME": "merge_group"}, Trust.BRANCH),  # not merged yet
        ({**PROTECTED, "GITHUB_EVENT_NAME": "pull_request_target"}, Trust.UNTRUSTED),
        ({**PROTECTED, "GITHUB_EVENT_NAME": "issue_comment"}, Trust.UNTRUSTED),
        ({**PROTECTED, "GITHUB_EVENT_NAME": "workflow_run"}, Trust.UNTRUSTED),
        ({**PROTECTED, "GITHUB_EVENT_NAME": "pull_request"}, Trust.UNTRUSTED),  # no payload
        ({"GITHUB_ACTIONS": "true"}, None),
        ({**GITEA, "GITHUB_EVENT_NAME": "push"}, None),  # nothing is protected there
        ({**GITEA, **TAG, "GITHUB_EVENT_NAME": "push"}, Trust.RELEASE),
        ({**GITEA, "GITHUB_EVENT_NAME": "pull_request_target"}, Trust.UNTRUSTED),
        (GITLAB, Trust.BRANCH),
        ({**GITLAB, "CI_COMMIT_REF_PROTECTED": "true"}, Trust.RELEASE),
        ({**GITLAB, "CI_COMMIT_TAG": "v1"}, Trust.BRANCH),  # a tag that any developer can push
        ({"GITLAB_CI": "true", "CI_COMMIT_TAG": "v1"}, Trust.RELEASE),
        ({"GITLAB_CI": "true"}, None),
        ({**GITLAB, **MERGE, "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "7"}, Trust.BRANCH),
        ({**GITLAB, **MERGE, "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "8"}, Trust.UNTRUSTED),
        ({**GITLAB, **MERGE, "CI_COMMIT_REF_PROTECTED": "true"}, Trust.UNTRUSTED),
        (
            {
                **GITLAB,
                **MERGE,
                "CI_PIPELINE_SOURCE": "parent_pipeline",
                "CI_MERGE_REQUEST_IID": "3",
                "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "8",
            },
            Trust.UNTRUSTED,
        ),
        (
            {
                **GITLAB,
                **EXTERNAL,
                "CI_EXTERNAL_PULL_REQUEST_SOURCE_REPOSITORY": "stranger/library",
            },
            Trust.UNTRUSTED,
        ),
        (
            {**GITLAB, **EXTERNAL, "CI_EXTERNAL_PULL_REQUEST_SOURCE_REPOSITORY": "team/library"},
            Trust.BRANCH,
        ),
        (JENKINS, None),
        ({**JENKINS, "CHANGE_ID": "4"}, Trust.BRANCH),
        ({**JENKINS, "CHANGE_ID": "4", "CHANGE_FORK": "stranger"}, Trust.UNTRUSTED),
        ({**JENKINS, "TAG_NAME": "v1"}, Trust.RELEASE),
        (BUILDKITE, None),
        ({**BUILDKITE, "BUILDKITE_TAG": "v1"}, Trust.RELEASE),
        (CHANGE, Trust.UNTRUSTED),
        (
            {**CHANGE, "BUILDKITE_PULL_REQUEST_REPO": "git://github.com/Team/library.git"},
            Trust.BRANCH,
        ),
        (
            {**CHANGE, "BUILDKITE_PULL_REQUEST_REPO": "https://github.com/stranger/library"},
            Trust.UNTRUSTED,
        ),
    ],
)
def test_level_that_the_variables_state(environ: dict[str, str], trust: Trust | None) -> None:
    job = read_ci_job(environ)
    assert job.system
    assert job.trust is trust


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({**GITHUB, "GITHUB_REF": "refs/heads/main"}, {"branch": "main"}),
        ({**GITHUB, "GITHUB_REF": "refs/tags/v1", "GITHUB_BASE_REF": ""}, {}),
        (
            {**GITHUB, **PULL, "GITHUB_REF": "refs/pull/12/merge"},
            {"branch": "topic", "pull_request": "12", "target": "main"},
        ),
        (
            {**GITLAB, "CI_COMMIT_BRANCH": "topic", "CI_COMMIT_SHA": "abc", **GITLAB_MAIN},
            {"branch": "topic", "main_branch": "main", "commits": ("abc",)},
        ),
        (
            {
                **GITLAB,
                **GITLAB_MAIN,
                "CI_MERGE_REQUEST_IID": "7",
                "CI_MERGE_REQUEST_EVENT_TYPE": "merged_result",
                "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "topic",
                "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": "def",
                "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "stable",
                "CI_MERGE_REQUEST_DIFF_BASE_SHA": "012",
            },
            {
                "branch": "topic",
                "pull_request": "7",
                "target": "stable",
                "main_branch": "main",
                "commits": ("def",),
                "merged": True,
                "merge_base": "012",
            },
        ),
        (
            {
                **CHANGE,
                "BUILDKITE_BRANCH": "topic",
                "BUILDKITE_COMMIT": "HEAD",
                "BUILDKITE_PIPELINE_DEFAULT_BRANCH": "main",
                "BUILDKITE_PULL_REQUEST_BASE_BRANCH": "main",
            },
            {"branch": "topic", "pull_request": "12", "target": "main", "main_branch": "main"},
        ),
        ({**BUILDKITE, "BUILDKITE_BRANCH": "v1", "BUILDKITE_TAG": "v1"}, {}),
        (
            {**JENKINS, "BRANCH_NAME": "main", "BRANCH_IS_PRIMARY": "true"},
            {"branch": "main", "main_branch": "main"},
        ),
        ({**JENKINS, "GIT_BRANCH": "origin/topic"}, {"branch": "topic"}),
        (
            {**JENKINS, "BRANCH_NAME": "PR-5", "CHANGE_ID": "5", **JENKINS_CHANGE},
            {"branch": "topic", "pull_request": "5", "target": "main"},
        ),
    ],
)
def test_branches_and_commits(variables: dict[str, str], expected: dict[str, Any]) -> None:
    job = read_ci_job(variables)
    assert job == CiJob(system=job.system, trust=job.trust, **expected)


def pull_request(head: str | None) -> dict[str, object]:
    source = {"repo": {"full_name": head} if head else None}
    return {"pull_request": {"head": source, "base": {"repo": {"full_name": "A/b"}}}}


@pytest.mark.parametrize(
    ("payload", "trust"),
    [
        (pull_request("a/b"), Trust.BRANCH),
        (pull_request("x/b"), Trust.UNTRUSTED),
        # GitHub has no repository for a fork that was deleted.
        (pull_request(None), Trust.UNTRUSTED),
        ({"pull_request": []}, Trust.UNTRUSTED),
        ([], Trust.UNTRUSTED),
    ],
)
@pytest.mark.parametrize("event", ["pull_request", "pull_request_review"])
@pytest.mark.parametrize("variables", [PROTECTED, GITEA], ids=["GitHub", "Gitea"])
def test_origin_of_a_pull_request(
    tmp_path: Path,
    variables: dict[str, str],
    event: str,
    payload: object,
    trust: Trust,
) -> None:
    path = tmp_path / "event.json"
    path.write_text(json.dumps(payload))
    found = {"GITHUB_EVENT_NAME": event, "GITHUB_EVENT_PATH": str(path)}
    job = read_ci_job({**variables, **found})
    assert job.system
    assert job.trust is trust


def test_target_of_a_merge_queue(tmp_path: Path) -> None:
    path = tmp_path / "event.json"
    path.write_text(json.dumps({"merge_group": {"base_ref": "refs/heads/main"}}))
    queue = "refs/heads/gh-readonly-queue/main/pr-7-0123"
    found = {"GITHUB_EVENT_NAME": "merge_group", "GITHUB_REF": queue}
    job = read_ci_job({**GITHUB, **found, "GITHUB_EVENT_PATH": str(path)})
    assert (job.branch, job.target) == ("gh-readonly-queue/main/pr-7-0123", "main")
    assert job.pull_request is None


DAMAGED = [b"", b"\xff", b"[" * 1_000_000, b'{"pull_request"', b'{"repository": 1, "head": []}']


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_payload_is_a_stranger_s(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "event.json"
    path.write_bytes(content)
    found = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(path)}
    job = read_ci_job({**PROTECTED, **found})
    assert job == CiJob(system="GitHub Actions", trust=Trust.UNTRUSTED)


@pytest.mark.parametrize("environ", [{}, {"CI": "true"}, {"TAG_NAME": "v1"}])
def test_no_known_ci_system(environ: dict[str, str]) -> None:
    assert read_ci_job(environ) == CiJob()
