"""What a CI system's variables tell about the job that this program runs in.

The variables are documented at

* https://docs.github.com/en/actions/reference/workflows-and-actions/variables (Gitea and Forgejo
  set the same ones, and GITEA_ACTIONS)
* https://docs.gitlab.com/ci/variables/predefined_variables/
* https://plugins.jenkins.io/branch-api/ (multibranch projects)
* https://buildkite.com/docs/pipelines/configure/environment-variables

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
LARGEST_EVENT = 25 << 20  # bytes; the limit of GitHub for the payload of an event


@dataclass(frozen=True, kw_only=True)
class CiJob:
    """The job of a CI system.

    Attributes:
        system: name of the system
        trust: the level that its variables state; ``None``: they state none
    """

    system: str
    trust: Trust | None


def read_ci_variables(environ: Mapping[str, str]) -> CiJob | None:
    """Return the job that this program runs in; ``None``: in no job of a known CI system.

    GitHub and its relatives describe the event in a file, which is read too.
    """
    if environ.get("GITLAB_CI"):
        return CiJob(system="GitLab", trust=_gitlab(environ))
    if environ.get("BUILDKITE"):
        return CiJob(system="Buildkite", trust=_buildkite(environ))
    if environ.get("JENKINS_URL"):
        return CiJob(system="Jenkins", trust=_jenkins(environ))
    if environ.get("GITHUB_ACTIONS") or environ.get("GITEA_ACTIONS"):
        gitea = bool(environ.get("GITEA_ACTIONS"))
        system = "Gitea or Forgejo Actions" if gitea else "GitHub Actions"
        return CiJob(system=system, trust=_github(environ, gitea=gitea))
    return None


def _github(environ: Mapping[str, str], *, gitea: bool) -> Trust | None:
    event = environ.get("GITHUB_EVENT_NAME", "")
    if event in EVENTS_OF_STRANGERS:
        return Trust.UNTRUSTED
    if event.startswith("pull_request"):
        return _of_change(*_github_repositories(environ))
    protected = environ.get("GITHUB_REF_PROTECTED")
    # The variable is "false" for every tag on GitHub, and for every ref on Gitea and Forgejo.
    if protected == "true" or environ.get("GITHUB_REF_TYPE") == "tag":
        return Trust.RELEASE
    return Trust.BRANCH if protected == "false" and not gitea else None


def _github_repositories(environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The repositories that a pull request comes from, and goes to."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        with Path(environ["GITHUB_EVENT_PATH"]).open("rb") as file:
            change = parse_object(file.read(LARGEST_EVENT).decode(), any_integer=True)
        change = change["pull_request"]
        head, base = (change[side]["repo"]["full_name"] for side in ("head", "base"))
        return str(head).lower(), str(base).lower()
    return None, None


def _gitlab(environ: Mapping[str, str]) -> Trust | None:
    event, change = environ.get("CI_PIPELINE_SOURCE"), "CI_EXTERNAL_PULL_REQUEST"
    if event == "external_pull_request_event":
        sides = (f"{change}_SOURCE_REPOSITORY", f"{change}_TARGET_REPOSITORY")
        return _of_change(*map(environ.get, sides))
    # A child pipeline has another event, and the variables of its parent's merge request.
    if event == "merge_request_event" or environ.get("CI_MERGE_REQUEST_IID"):
        sides = ("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "CI_MERGE_REQUEST_PROJECT_ID")
        return _of_change(*map(environ.get, sides))
    protected = environ.get("CI_COMMIT_REF_PROTECTED")  # of a branch or a tag
    if protected == "true" or (protected is None and environ.get("CI_COMMIT_TAG")):
        return Trust.RELEASE
    return Trust.BRANCH if protected == "false" else None


def _jenkins(environ: Mapping[str, str]) -> Trust | None:
    if environ.get("CHANGE_FORK"):
        return Trust.UNTRUSTED
    if environ.get("CHANGE_ID"):
        return Trust.BRANCH
    return Trust.RELEASE if environ.get("TAG_NAME") else None


def _buildkite(environ: Mapping[str, str]) -> Trust | None:
    if environ.get("BUILDKITE_PULL_REQUEST", "false") != "false":
        sides = ("BUILDKITE_PULL_REQUEST_REPO", "BUILDKITE_REPO")
        return _of_change(*(_repository(environ.get(side)) for side in sides))
    return Trust.RELEASE if environ.get("BUILDKITE_TAG") else None


def _repository(url: str | None) -> str | None:
    """``git@host:owner/name.git`` and ``https://host/owner/name`` name one repository."""
    words = re.split("[/:]", (url or "").lower().removesuffix("/").removesuffix(".git"))
    return "/".join(words[-2:]) if len(words) > 1 else None


def _of_change(source: str | None, target: str | None) -> Trust:
    """The level of a proposed change: a fork's is untrusted, and one of unknown origin too."""
    return Trust.BRANCH if source and source == target else Trust.UNTRUSTED
