"""The job of a CI system that this program runs in, from the system's variables.

The variables, as documented by their systems:

* GitHub Actions, and Gitea and Forgejo Actions, which set the same names:
  https://docs.github.com/en/actions/reference/workflows-and-actions/variables
* GitLab: https://docs.gitlab.com/ci/variables/predefined_variables/
* Jenkins, in multibranch projects and with its git plugin: ``env-vars.html`` of any server
* Buildkite: https://buildkite.com/docs/pipelines/configure/environment-variables

This module needs only the standard library: ``noxfile.py`` imports it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.model.trust import Trust
from ci.util.lines import parse_object

# GitHub runs these events with the rights and the ref of the default or base branch, though what
# they build is usually a pull request: from a comment on it, or after its first workflow.
EVENTS_OF_STRANGERS = ("pull_request_target", "issue_comment", "workflow_run")
HEADS = "refs/heads/"
LARGEST_EVENT = 25 << 20  # bytes; GitHub's limit for the payload of an event


@dataclass(frozen=True, kw_only=True)
class CiJob:
    """A job of a CI system, as its variables describe it."""

    system: str | None = None
    """Name of the system; ``None``: this program runs in no job of a known one."""
    trust: Trust | None = None
    """The level that the variables state; ``None``: they state none."""
    branch: str | None = None
    pull_request: str | None = None
    """Its number."""
    target: str | None = None
    """The branch that the pull request goes to."""
    main_branch: str | None = None
    commits: tuple[str, ...] = ()
    """The commits that the job may check out; empty if the variables name none."""
    merged: bool = False
    """Whether the variables say that the commit merges the pull request."""
    merge_base: str | None = None


def read_ci_job(environ: Mapping[str, str]) -> CiJob:
    """Read the variables of the CI system; all fields are empty outside of one.

    GitHub and its relatives describe the event in a file, which is read too.
    """
    # An empty variable is as good as none.
    known = {name: value for name, value in environ.items() if value}
    for variable, read in {
        "GITLAB_CI": _gitlab_job,
        "BUILDKITE": _buildkite_job,
        "JENKINS_URL": _jenkins_job,
        "GITHUB_ACTIONS": _github_job,  # of Gitea and Forgejo, too
    }.items():
        if variable in known:
            return read(known)
    return CiJob()


def job_page(environ: Mapping[str, str]) -> str | None:
    """Return the address of the page of the CI system's job; ``None`` outside of one."""
    if run := environ.get("GITHUB_RUN_ID"):  # of Gitea and Forgejo, too
        server, repository = (
            environ.get(f"GITHUB_{it}", "") for it in ("SERVER_URL", "REPOSITORY")
        )
        return f"{server}/{repository}/actions/runs/{run}"
    pages = ("CI_JOB_URL", "BUILDKITE_BUILD_URL", "BUILD_URL")
    return next((environ[it] for it in pages if environ.get(it)), None)


def _github_job(variables: Mapping[str, str]) -> CiJob:
    gitea = "GITEA_ACTIONS" in variables
    event = _github_event(variables.get("GITHUB_EVENT_PATH", ""))
    request = _section(event, "pull_request")
    ref = variables.get("GITHUB_REF", "")
    number = ref.removeprefix("refs/pull/").partition("/")[0] if "refs/pull/" in ref else None
    target = variables.get("GITHUB_BASE_REF")
    queued = _text(_section(event, "merge_group"), "base_ref")  # of a merge queue
    pushed = ref.removeprefix(HEADS) if ref.startswith(HEADS) else None
    return CiJob(
        system="Gitea or Forgejo Actions" if gitea else "GitHub Actions",
        trust=_github_trust(variables, request, gitea=gitea),
        branch=variables.get("GITHUB_HEAD_REF") if target else pushed,
        pull_request=(number or str(request.get("number", "0"))) if target else None,
        target=target or (queued.removeprefix(HEADS) if queued else None),
        main_branch=_text(_section(event, "repository"), "default_branch"),
        # `pull_request` checks out a merge on GitHub, and the branch itself on Gitea.
        commits=_known(variables.get("GITHUB_SHA"), _text(_section(request, "head"), "sha")),
    )


def _github_trust(
    variables: Mapping[str, str], request: Mapping[str, Any], *, gitea: bool
) -> Trust | None:
    event = variables.get("GITHUB_EVENT_NAME", "")
    if event in EVENTS_OF_STRANGERS:
        return Trust.UNTRUSTED
    if event.startswith("pull_request"):
        return _trust_of_change(*(_github_repository(request, side) for side in ("head", "base")))
    if event == "merge_group":  # someone with write access queued it, but it is not merged yet
        return Trust.BRANCH
    protected = variables.get("GITHUB_REF_PROTECTED")
    # The variable is "false" for every tag on GitHub, and for every ref on Gitea and Forgejo:
    # https://github.com/orgs/community/discussions/142985
    if protected == "true" or variables.get("GITHUB_REF_TYPE") == "tag":
        return Trust.RELEASE
    return Trust.BRANCH if protected == "false" and not gitea else None


def _github_repository(request: Mapping[str, Any], side: str) -> str | None:
    """Return the repository that a pull request comes from (``head``) or goes to (``base``)."""
    name = _text(_section(_section(request, side), "repo"), "full_name")
    return name.lower() if name else None


def _github_event(path: str) -> Mapping[str, Any]:
    """Return the event that started a job; empty if it cannot be read."""
    with suppress(OSError, ValueError), Path(path).open("rb") as file:
        return parse_object(file.read(LARGEST_EVENT).decode(), any_integer=True)
    return {}


def _section(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = event.get(name)
    return part if isinstance(part, dict) else {}


def _text(section: Mapping[str, Any], name: str) -> str | None:
    value = section.get(name)
    return value if isinstance(value, str) and value else None


def _known(*commits: str | None) -> tuple[str, ...]:
    return tuple(commit for commit in commits if commit)


def _gitlab_job(variables: Mapping[str, str]) -> CiJob:
    event, protected = (
        variables.get(name) for name in ("CI_PIPELINE_SOURCE", "CI_COMMIT_REF_PROTECTED")
    )
    trust = None
    if event == "external_pull_request_event":
        trust = _trust_of_change(
            variables.get("CI_EXTERNAL_PULL_REQUEST_SOURCE_REPOSITORY"),
            variables.get("CI_EXTERNAL_PULL_REQUEST_TARGET_REPOSITORY"),
        )
    # A child pipeline has another event, and the variables of its parent's merge request.
    elif event == "merge_request_event" or "CI_MERGE_REQUEST_IID" in variables:
        trust = _trust_of_change(
            variables.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID"),
            variables.get("CI_MERGE_REQUEST_PROJECT_ID"),
        )
    elif protected:  # of a branch or a tag
        trust = Trust.RELEASE if protected == "true" else Trust.BRANCH
    elif "CI_COMMIT_TAG" in variables:
        trust = Trust.RELEASE
    request = variables.get("CI_MERGE_REQUEST_IID")
    own = variables.get("CI_COMMIT_BRANCH")  # not set for merge requests
    return CiJob(
        system="GitLab",
        trust=trust,
        branch=variables.get("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME") if request else own,
        pull_request=request,
        target=variables.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME"),
        main_branch=variables.get("CI_DEFAULT_BRANCH"),
        commits=_known(
            variables.get("CI_COMMIT_SHA"), variables.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA")
        ),
        merged=variables.get("CI_MERGE_REQUEST_EVENT_TYPE") in ("merged_result", "merge_train"),
        merge_base=variables.get("CI_MERGE_REQUEST_DIFF_BASE_SHA"),
    )


def _buildkite_job(variables: Mapping[str, str]) -> CiJob:
    trust = Trust.RELEASE if "BUILDKITE_TAG" in variables else None
    number = variables.get("BUILDKITE_PULL_REQUEST", "false")
    is_request = number != "false"
    if is_request:
        sides = ("BUILDKITE_PULL_REQUEST_REPO", "BUILDKITE_REPO")
        trust = _trust_of_change(*(_repository(variables.get(side, "")) for side in sides))
    commit = variables.get("BUILDKITE_COMMIT", "HEAD")  # HEAD: the newest of the branch
    return CiJob(
        system="Buildkite",
        trust=trust,
        branch=None if "BUILDKITE_TAG" in variables else variables.get("BUILDKITE_BRANCH"),
        pull_request=number if is_request else None,
        target=variables.get("BUILDKITE_PULL_REQUEST_BASE_BRANCH") if is_request else None,
        main_branch=variables.get("BUILDKITE_PIPELINE_DEFAULT_BRANCH"),
        commits=() if commit == "HEAD" else (commit,),
        merged=variables.get("BUILDKITE_PULL_REQUEST_USING_MERGE_REFSPEC") == "true",
    )


def _repository(url: str) -> str | None:
    """``git@host:owner/name.git`` and ``https://host/owner/name`` name one repository."""
    words = re.split("[/:]", url.lower().removesuffix("/").removesuffix(".git"))
    return "/".join(words[-2:]) if len(words) > 1 else None


def _jenkins_job(variables: Mapping[str, str]) -> CiJob:
    trust = Trust.RELEASE if "TAG_NAME" in variables else None
    number = variables.get("CHANGE_ID")
    if number:
        trust = Trust.UNTRUSTED if "CHANGE_FORK" in variables else Trust.BRANCH
    # BRANCH_NAME is set in multibranch projects, GIT_BRANCH (origin/main) by the git plugin.
    checked_out = variables.get("GIT_BRANCH", "").removeprefix("origin/") or None
    own = None if "TAG_NAME" in variables else variables.get("BRANCH_NAME", checked_out)
    return CiJob(
        system="Jenkins",
        trust=trust,
        branch=variables.get("CHANGE_BRANCH") if number else own,
        pull_request=number,
        target=variables.get("CHANGE_TARGET"),
        main_branch=own if variables.get("BRANCH_IS_PRIMARY") == "true" else None,
    )


def _trust_of_change(source: str | None, target: str | None) -> Trust:
    """Return the level of a change: a fork's is untrusted, and one of unknown origin too."""
    return Trust.BRANCH if source and source == target else Trust.UNTRUSTED
