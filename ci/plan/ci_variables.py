"""The job of a CI system that this program runs in, from the system's variables.

The variables, as documented by their systems:

* GitHub Actions, and Gitea and Forgejo Actions, which set the same names:
  https://docs.github.com/en/actions/reference/workflows-and-actions/variables
* GitLab: https://docs.gitlab.com/ci/variables/predefined_variables/
* Jenkins, in multibranch projects: ``env-vars.html`` of any server
* Buildkite: https://buildkite.com/docs/pipelines/configure/environment-variables

This module needs only the standard library: ``noxfile.py`` imports it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ci.model.trust import Trust
from ci.util.lines import parse_object

# GitHub runs these events with the rights and the ref of the default or base branch, though what
# they build is usually a pull request: from a comment on it, or after its first workflow.
EVENTS_OF_STRANGERS = ("pull_request_target", "issue_comment", "workflow_run")
LARGEST_EVENT = 25 << 20  # bytes; GitHub's limit for the payload of an event


@dataclass(frozen=True, kw_only=True)
class CiJob:
    """A job of a CI system, as its variables describe it."""

    system: str | None = None
    """Name of the system; ``None``: this program runs in no job of a known one."""
    trust: Trust | None = None
    """The level that the variables state; ``None``: they state none."""


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


def _github_job(variables: Mapping[str, str]) -> CiJob:
    gitea = "GITEA_ACTIONS" in variables
    return CiJob(
        system="Gitea or Forgejo Actions" if gitea else "GitHub Actions",
        trust=_github_trust(variables, gitea=gitea),
    )


def _github_trust(variables: Mapping[str, str], *, gitea: bool) -> Trust | None:
    event = variables.get("GITHUB_EVENT_NAME", "")
    if event in EVENTS_OF_STRANGERS:
        return Trust.UNTRUSTED
    if event.startswith("pull_request"):
        return _trust_of_change(*_github_repositories(variables.get("GITHUB_EVENT_PATH", "")))
    protected = variables.get("GITHUB_REF_PROTECTED")
    # The variable is "false" for every tag on GitHub, and for every ref on Gitea and Forgejo:
    # https://github.com/orgs/community/discussions/142985
    if protected == "true" or variables.get("GITHUB_REF_TYPE") == "tag":
        return Trust.RELEASE
    return Trust.BRANCH if protected == "false" and not gitea else None


def _github_repositories(event_file: str) -> tuple[str | None, str | None]:
    """Return the repositories that a pull request comes from, and goes to."""
    with suppress(OSError, ValueError, KeyError, TypeError), Path(event_file).open("rb") as file:
        event = parse_object(file.read(LARGEST_EVENT).decode(), any_integer=True)
        sides = (event["pull_request"][side] for side in ("head", "base"))
        source, target = (str(side["repo"]["full_name"]).lower() for side in sides)
        return source, target
    return None, None


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
    return CiJob(system="GitLab", trust=trust)


def _buildkite_job(variables: Mapping[str, str]) -> CiJob:
    trust = Trust.RELEASE if "BUILDKITE_TAG" in variables else None
    if variables.get("BUILDKITE_PULL_REQUEST", "false") != "false":
        sides = ("BUILDKITE_PULL_REQUEST_REPO", "BUILDKITE_REPO")
        trust = _trust_of_change(*(_repository(variables.get(side, "")) for side in sides))
    return CiJob(system="Buildkite", trust=trust)


def _repository(url: str) -> str | None:
    """``git@host:owner/name.git`` and ``https://host/owner/name`` name one repository."""
    words = re.split("[/:]", url.lower().removesuffix("/").removesuffix(".git"))
    return "/".join(words[-2:]) if len(words) > 1 else None


def _jenkins_job(variables: Mapping[str, str]) -> CiJob:
    trust = Trust.RELEASE if "TAG_NAME" in variables else None
    if "CHANGE_ID" in variables:
        trust = Trust.UNTRUSTED if "CHANGE_FORK" in variables else Trust.BRANCH
    return CiJob(system="Jenkins", trust=trust)


def _trust_of_change(source: str | None, target: str | None) -> Trust:
    """Return the level of a change: a fork's is untrusted, and one of unknown origin too."""
    return Trust.BRANCH if source and source == target else Trust.UNTRUSTED
