"""The lineage of a commit: its branch and ancestors, from its clone and from the CI system.

Clones of CI systems often have a detached HEAD and few commits, and know no other branch. What git
cannot answer is read from the variables of the CI system; what neither knows stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ci.model.fields import LONGEST_BRANCH, MOST_ANCESTORS, MOST_PARENTS, CommitId
from ci.model.results import MAIN_BRANCHES, NO_LINEAGE, Lineage
from ci.plan.ci_variables import HEADS, CiJob, read_ci_job
from ci.util.git import git
from ci.util.process import ProcessError

REMOTE = "refs/remotes/origin/"


def read_lineage(folder: Path, commit: str | None, environ: Mapping[str, str]) -> Lineage:
    """Read the lineage of ``commit``, which is checked out in ``folder``.

    Never raises: a run does not depend on it.
    """
    if commit is None:
        return NO_LINEAGE
    try:
        return _Clone(folder, commit).lineage(read_ci_job(environ))
    except ProcessError:
        return NO_LINEAGE


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
        return git(self._folder, *arguments, check=False).strip()

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
        # A job of a CI system tests what was pushed, although its clone may be older.
        if base is None and target is None and checked_out and job.system is None:
            base = self._base_of(f"{REMOTE}{branch}")
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
        depth = len(line) or None
        if line and self._git("rev-parse", "--is-shallow-repository") == "true":
            line += self._parents(line[-1])[:1]
            depth = None
        return tuple(line[1 : MOST_ANCESTORS + 1]), depth

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
        return self._base_of(self._ref(target), commit)

    def _base_of(self, ref: str | None, commit: str | None = None) -> CommitId | None:
        is_known = ref is not None and ref in self._refs
        return (is_known and self._git("merge-base", commit or self._commit, str(ref))) or None


def _storable(branch: str | None) -> str | None:
    """A branch if its name can be stored; git allows almost any bytes."""
    fits = branch and branch.isprintable() and len(branch) <= LONGEST_BRANCH
    return branch if fits else None
