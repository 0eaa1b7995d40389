"""The lineage of a commit: its branch and ancestors, from its clone and from the CI system.

Clones of CI systems often have a detached HEAD and few commits, and know no other branch. What git
cannot answer is read from the variables of the CI system; what neither knows stays unknown.

The variables, as documented by their systems:

* GitHub Actions, and Gitea and Forgejo Actions, which set the same names:
  https://docs.github.com/en/actions/reference/workflows-and-actions/variables
* GitLab: https://docs.gitlab.com/ci/variables/predefined_variables/
* Jenkins, in multibranch projects and with its git plugin: ``env-vars.html`` of any server
* Buildkite: https://buildkite.com/docs/pipelines/configure/environment-variables
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.model.results import (
    LONGEST_BRANCH,
    MAIN_BRANCHES,
    MOST_ANCESTORS,
    MOST_PARENTS,
    NO_LINEAGE,
    CommitId,
    Lineage,
)
from ci.plan import source
from ci.util.process import ProcessError

HEADS, REMOTE = "refs/heads/", "refs/remotes/origin/"
LARGEST_EVENT = 1 << 22  # bytes of GitHub's event; one of a push of many commits has some 100,000


@dataclass(frozen=True, kw_only=True)
class CiJob:
    """The branch that a job of a CI system tests, as its variables name it."""

    branch: str | None = None
    pull_request: str | None = None
    """Its number."""
    target: str | None = None
    main_branch: str | None = None
    commits: tuple[str, ...] = ()
    """The commits that the job may check out; empty if the variables name none."""
    merged: bool = False
    """Whether the variables say that the commit merges the pull request."""
    merge_base: str | None = None


def read_lineage(folder: Path, commit: str | None, environ: Mapping[str, str]) -> Lineage:
    """Read the lineage of ``commit``, which is checked out in ``folder``.

    Never raises: a run does not depend on it.
    """
    if commit is None:
        return NO_LINEAGE
    try:
        return _Clone(folder, commit).lineage(read_job(environ))
    except ProcessError:
        return NO_LINEAGE


# The clone


class _Clone:
    """A clone, with what it knows of a commit that is checked out in it."""

    def __init__(self, folder: Path, commit: str) -> None:
        self._folder, self._commit = folder, commit
        # Of every branch its commit; origin/HEAD has the ref of the main branch, too.
        form = "--format=%(objectname) %(refname) %(symref)"
        rows = [row.split() for row in self._git("for-each-ref", form, HEADS, REMOTE).splitlines()]
        self._refs = {name: tip for tip, name, *to in rows if not to}
        symbolic = next((to[0] for _, name, *to in rows if to and name == f"{REMOTE}HEAD"), "")
        usual = (name for name in MAIN_BRANCHES if self._ref(name))
        self._main = symbolic.removeprefix(REMOTE) or next(usual, None)

    def _git(self, *arguments: str) -> str:
        return source.git(self._folder, *arguments, check=False).strip()

    def _ref(self, branch: str | None) -> str | None:
        """The ref of a branch. A local branch may be older than that of the remote."""
        names = (f"{start}{branch}" for start in (REMOTE, HEADS))
        return next((name for name in names if name in self._refs), None)

    def lineage(self, job: CiJob) -> Lineage:
        parents = self._parents(self._commit)
        checked_out = self._git("symbolic-ref", "--quiet", "--short", "HEAD")
        if not self._is_of(job, checked_out, parents):
            job = CiJob()
        main = job.main_branch or self._main
        branch = checked_out or job.branch or self._branch_here(main)
        target = job.target or (main if main != branch else None)
        if job.pull_request and branch in (target, main):  # the main branch of a fork
            branch = f"pull/{job.pull_request}"
        merged = self._merges(parents, job, target)
        base = parents[0] if merged else self._merge_base(target) or job.merge_base
        ancestors, depth = self._ancestors()
        return Lineage(
            branch=_storable(branch),
            main_branch=_storable(main),
            target=_storable(target),
            merge_commit=merged,
            parents=parents[:MOST_PARENTS],
            ancestors=ancestors,
            depth=depth,
            merge_base=base,
        )

    def _is_of(self, job: CiJob, checked_out: str, parents: tuple[CommitId, ...]) -> bool:
        """Whether the job is about this clone: it may run another project's sources."""
        if checked_out:
            return checked_out == job.branch
        return not job.commits or not {self._commit, *parents}.isdisjoint(job.commits)

    def _parents(self, commit: str) -> tuple[CommitId, ...]:
        """The parents in the commit itself: a shallow clone names them without having them."""
        header = self._git("cat-file", "commit", commit).partition("\n\n")[0]
        lines = (line.partition(" ") for line in header.splitlines())
        return tuple(value for name, _, value in lines if name == "parent")

    def _ancestors(self) -> tuple[tuple[CommitId, ...], int | None]:
        """The nearest first parents, and the length of the line if the clone has all of it."""
        line = self._git("rev-list", "--first-parent", self._commit).split()
        if self._git("rev-parse", "--is-shallow-repository") != "true":
            return tuple(line[1 : MOST_ANCESTORS + 1]), len(line) or None
        line += self._parents(line[-1])[:1] if line else ()
        return tuple(line[1 : MOST_ANCESTORS + 1]), None

    def _branch_here(self, main: str | None) -> str | None:
        """The only branch, or the main one, that points to the commit."""
        names = {
            name.removeprefix(REMOTE).removeprefix(HEADS)
            for name, tip in self._refs.items()
            if tip == self._commit
        }
        return main if main in names else names.pop() if len(names) == 1 else None

    def _merges(self, parents: tuple[CommitId, ...], job: CiJob, target: str | None) -> bool:
        """Whether the commit of a pull request merges it into its target, only to test it.

        A branch into which its target was merged has its own commit as the first parent.
        """
        if not job.pull_request or len(parents) < 2:
            return False
        is_named = job.merged or parents[1] in job.commits
        return is_named or self._merge_base(target, parents[0]) == parents[0]

    def _merge_base(self, target: str | None, commit: str | None = None) -> CommitId | None:
        ref = self._ref(target)
        return (ref and self._git("merge-base", commit or self._commit, ref)) or None


def _storable(branch: str | None) -> str | None:
    """A branch if its name can be stored; git allows almost any bytes."""
    fits = branch and branch.isprintable() and len(branch) <= LONGEST_BRANCH
    return branch if fits else None


# The CI system


def read_job(environ: Mapping[str, str]) -> CiJob:
    """Read the variables of the CI system; all fields are empty outside of one."""
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
    event = _read_event(variables.get("GITHUB_EVENT_PATH"))
    request = event.get("pull_request")
    request = request if isinstance(request, dict) else {}
    ref = variables.get("GITHUB_REF", "")
    number = ref.removeprefix("refs/pull/").partition("/")[0] if "refs/pull/" in ref else None
    target = variables.get("GITHUB_BASE_REF")
    pushed = ref.removeprefix(HEADS) if ref.startswith(HEADS) else None
    return CiJob(
        branch=variables.get("GITHUB_HEAD_REF") if target else pushed,
        pull_request=(number or str(request.get("number", "0"))) if target else None,
        target=target,
        main_branch=_text(event, "repository", "default_branch"),
        # `pull_request` checks out a merge on GitHub, and the branch itself on Gitea.
        commits=_known(variables.get("GITHUB_SHA"), _text(request, "head", "sha")),
    )


def _gitlab_job(variables: Mapping[str, str]) -> CiJob:
    request = variables.get("CI_MERGE_REQUEST_IID")
    own = variables.get("CI_COMMIT_BRANCH")  # not set for merge requests
    return CiJob(
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
    number = variables.get("BUILDKITE_PULL_REQUEST", "false")
    is_request = number != "false"
    commit = variables.get("BUILDKITE_COMMIT", "HEAD")  # HEAD: the newest of the branch
    return CiJob(
        branch=None if "BUILDKITE_TAG" in variables else variables.get("BUILDKITE_BRANCH"),
        pull_request=number if is_request else None,
        target=variables.get("BUILDKITE_PULL_REQUEST_BASE_BRANCH") if is_request else None,
        main_branch=variables.get("BUILDKITE_PIPELINE_DEFAULT_BRANCH"),
        commits=() if commit == "HEAD" else (commit,),
        merged=variables.get("BUILDKITE_PULL_REQUEST_USING_MERGE_REFSPEC") == "true",
    )


def _jenkins_job(variables: Mapping[str, str]) -> CiJob:
    number = variables.get("CHANGE_ID")
    # BRANCH_NAME is set in multibranch projects, GIT_BRANCH (origin/main) by the git plugin.
    checked_out = variables.get("GIT_BRANCH", "").removeprefix("origin/") or None
    own = None if "TAG_NAME" in variables else variables.get("BRANCH_NAME", checked_out)
    return CiJob(
        branch=variables.get("CHANGE_BRANCH") if number else own,
        pull_request=number,
        target=variables.get("CHANGE_TARGET"),
        main_branch=own if variables.get("BRANCH_IS_PRIMARY") == "true" else None,
    )


def _read_event(path: str | None) -> Mapping[str, Any]:
    """The event that started a job; empty if it cannot be read."""
    try:
        with Path(path or "").open("rb") as file:
            event = json.loads(file.read(LARGEST_EVENT))
    except (OSError, ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _text(event: Mapping[str, Any], section: str, name: str) -> str | None:
    part = event.get(section)
    value = part.get(name) if isinstance(part, dict) else None
    return value if isinstance(value, str) and value else None


def _known(*commits: str | None) -> tuple[str, ...]:
    return tuple(commit for commit in commits if commit)
