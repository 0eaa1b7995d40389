"""The history that travels with sources whose version is not in their ``pyproject.toml``.

Many build backends and plugins ask git for the version: the nearest tag, the number of commits
since then, and whether files have changed. The copy of the sources gets a repository that answers
as the original does: the newest commits with their tags and the names of their files, and the
content of those of the newest one and its parents. It has no configuration, hooks, remotes or other
branches of the original.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ci.util.git import WorkTree, filters_of, find_work_tree, git, head, in_work_tree, listed_files
from ci.util.process import ProcessError

CONFIG = "[core]\n\trepositoryformatversion = {}\n\tbare = false\n"
SHA256 = "[extensions]\n\tobjectFormat = sha256\n"
# One thread: in the same repository it writes the same bytes.
PACK = ("pack-objects", "-q", "--threads=1")
# With their trees, 1,000 commits take about 1 MB and 1 s.
MOST_COMMITS = 5000
LACKING_TAGS = (
    f"none among the {MOST_COMMITS:,} newest commits, or a shallow clone: if the version comes from"
    " git, tag a newer commit or run `git fetch --tags --unshallow`"
)


def travels(folder: Path) -> bool:
    """Return whether the sources need their history: only git may know their version."""
    try:
        document = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        project = document.get("project")
    except (OSError, ValueError):  # no such file, or one that only the build can complain about
        project = None
    if (isinstance(project, dict) and "version" in project) or not in_work_tree(folder):
        return False
    return any(listed_files(folder))  # else git ignores the folder


def subfolder(folder: Path) -> str:
    """Return the place of the sources in the tree that is copied: ``.`` is its top.

    With a history it is that of the repository, which plugins expect at the same place above. If
    git cannot answer, the checks before a run report it.
    """
    try:
        return place_of(folder) if travels(folder) else "."
    except ProcessError:
        return "."


def place_of(folder: Path) -> str:
    """Return the place of a folder in its repository: ``.`` is the top."""
    return _output(folder, "rev-parse", "--show-prefix").rstrip("/") or "."


def tags_of(folder: Path) -> str:
    """Return the tags that the commit can reach, which its version depends on."""
    return "\n".join(map(" ".join, _tags(folder, "--merged=HEAD"))) if head(folder) else ""


def _output(folder: Path, *arguments: str) -> str:
    """Return one value, which may end with white space."""
    return git(folder, *arguments, check=False).removesuffix("\n")


def _tags(folder: Path, *options: str) -> list[tuple[str, str, str]]:
    """Return the tags: object, name, and commit if it is another."""
    form = "--format=%(objectname) %(refname) %(*objectname)"
    found = git(folder, "for-each-ref", *options, form, "refs/tags/")
    rows = (row.split(" ") for row in found.split("\n") if row)
    return [(tag, name, commit) for tag, name, commit in rows]


@dataclass(frozen=True, kw_only=True)
class CopiedHistory:
    """A repository in a folder, and the reason if it cannot answer as a complete one."""

    folder: Path
    names: tuple[Path, ...]  # of files and folders, relative to it, sorted
    lack: str | None


@contextmanager
def copied_history(folder: Path, copied: Collection[Path]) -> Iterator[CopiedHistory]:
    """Yield the repository for a copy; it is removed at the end.

    ``copied`` are the files that are copied, relative to ``folder``.
    """
    tree = find_work_tree(folder)
    if tree is None:
        raise ProcessError(f"{folder} is in no work tree any more")
    with TemporaryDirectory(prefix="infini-ci-history-") as made:
        own = Path(made)
        (own / ".git/objects/pack").mkdir(parents=True)
        (own / ".git/refs").mkdir()
        # Old versions of git know the one format only, and no word for it.
        is_new = _output(folder, "rev-parse", "--show-object-format") == "sha256"
        settings = CONFIG.format(1) + SHA256 if is_new else CONFIG.format(0)
        (own / ".git/config").write_text(settings)
        lack = _copy_commits(tree, own / ".git")
        place = place_of(folder)
        _make_index(tree.top, own, {str(Path(place, it)) for it in copied})
        found = sorted(path.relative_to(own) for path in own.rglob("*"))
        yield CopiedHistory(folder=own, names=tuple(found), lack=lack)


def _copy_commits(tree: WorkTree, into: Path) -> str | None:
    """Copy the newest commits with their tags and files; return why they lack a tag."""
    top = tree.top
    branch, newest = _output(top, "symbolic-ref", "--quiet", "HEAD"), head(top)
    (into / "HEAD").write_bytes(os.fsencode(f"ref: {branch}\n" if branch else f"{newest}\n"))
    if newest is None:
        return None
    commits, ends = _newest_commits(git(top, "rev-list", "--parents", "HEAD"))
    # Not `--merged`, which misses some where a parent is newer than its child.
    tags = [tag for tag in _tags(top) if (tag[2] or tag[0]) in commits]
    lines = ["# pack-refs with: peeled fully-peeled"]
    lines += [f"{it} {name}" + (f"\n^{commit}" if commit else "") for it, name, commit in tags]
    lines += [f"{newest} {branch}"] if branch else []
    (into / "packed-refs").write_bytes(os.fsencode(_lines(lines)))
    # A partial clone has not all objects, and must not fetch them now.
    objects = ("rev-list", "--objects", "--no-object-names", "--no-walk", "--missing=allow-any")
    trees = git(top, *objects, "--filter=blob:none", "--stdin", stdin=_lines(commits))
    files = git(top, *objects, "HEAD", "HEAD^@")
    ids = dict.fromkeys([*trees.split(), *files.split(), *(it for it, _, _ in tags)])
    git(top, *PACK, str(into / "objects/pack/pack"), stdin=_lines(ids))
    if _output(top, "rev-parse", "--is-shallow-repository") == "true":
        shallow = (tree.common / "shallow").read_text().split()
        ends = commits.keys() & {*ends, *shallow}
    if ends:
        (into / "shallow").write_text(_lines(sorted(ends)))
    return None if tags or not ends else LACKING_TAGS


def _newest_commits(listing: str) -> tuple[dict[str, None], set[str]]:
    """Return the commits that are copied, and those of them whose parents are not.

    ``listing`` has a line for each commit: its id, and those of its parents. The first is the
    newest. As in a shallow clone, the commits of one more generation are added until there are
    enough.
    """
    parents = {commit: parents for commit, *parents in map(str.split, listing.splitlines())}
    generation = [next(iter(parents))]
    found = dict.fromkeys(generation)
    while generation and len(found) < MOST_COMMITS:
        above = dict.fromkeys(it for commit in generation for it in parents[commit])
        generation = [it for it in above if it not in found]
        found.update(dict.fromkeys(generation))
    return found, {commit for commit in generation if parents[commit]}


def _lines(words: Iterable[str]) -> str:
    return "".join(f"{word}\n" for word in words)


def _make_index(top: Path, own: Path, copied: Collection[str]) -> None:
    """Write the index. A file that is not copied counts as unchanged, if it is."""
    staged = git(top, "ls-files", "-z", "--stage")
    git(own, "update-index", "-z", "--index-info", stdin=staged)
    names = [row.partition("\t")[2] for row in staged.split("\0") if row]
    changed = set(git(top, "ls-files", "-z", "--modified").split("\0"))
    _mark(own, "--skip-worktree", [it for it in names if it not in copied and it not in changed])
    if any(name.endswith(".gitattributes") for name in names):
        # Their content in the tree is not that in the repository, and their filter is not there.
        _mark(own, "--assume-unchanged", filters_of(top, names))


def _mark(own: Path, option: str, names: Collection[str]) -> None:
    if names:
        listed = "".join(f"{name}\0" for name in names)
        git(own, "update-index", option, "-z", "--stdin", stdin=listed)
