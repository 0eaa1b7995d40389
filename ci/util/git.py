"""Git, as this program calls it on the sources of others: it runs no program of theirs.

git executes what the configuration of a repository names: monitors, hooks, filters, pagers, remote
helpers. Options on the command line cannot turn all of it off, since filters and drivers have any
name. So git never reads that configuration: each call has a git folder of its own, with a
configuration of ours, and links to the repository's objects, refs and index.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ci.util import process
from ci.util.process import ProcessError, ProcessResult

# git reads a tree of 100,000 files in a few seconds, and in a minute over a slow network.
GIT_TIMEOUT_S = 120.0
# Of files of a repository that are read whole. They have a line or some dozens.
LARGEST_FILE = 1 << 20

# Set in every git folder of ours. Without a transport, git fetches nothing, missing objects of a
# partial clone included.
SETTINGS = {
    "core.bare": "false",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "safe.bareRepository": "explicit",
    "status.renames": "false",
}
# The only keys of a repository that are read. They say how its files are stored and compared, and
# name no program. git itself refuses an extension that it does not know.
REPOSITORY_KEYS = re.compile(
    r"core\.(repositoryformatversion|filemode|symlinks|ignorecase|precomposeunicode|autocrlf|eol"
    r"|checkstat|trustctime|excludesfile|attributesfile|sparsecheckout|sparsecheckoutcone)"
    r"|index\.sparse|extensions\.(?!worktreeconfig$|partialclone$)[a-z0-9-]+"
)
# The caller's own: how files are compared, and which ones are ignored.
USER_KEYS = re.compile(
    r"core\.(autocrlf|eol|checkstat|trustctime|precomposeunicode|excludesfile|attributesfile)"
)
# Files with patterns, and their names in the folder of the caller's settings.
PATTERN_FILES = {"core.excludesfile": "ignore", "core.attributesfile": "attributes"}
# What git links to in the folder that all worktrees share.
LINKS = ("refs", "packed-refs", "reftable", "shallow")
TEMPORARY = "infini-ci-git-"
SUBMODULE = re.compile(r"(?:^|\0)160000 ([0-9a-f]+) \d\t([^\0]+)")
HEAD = re.compile(r"[A-Z_]*HEAD")  # HEAD, FETCH_HEAD, ORIG_HEAD
NOT_GIT = "fatal: not a git repository (or any of the parent directories): .git"


class RepositoryError(ProcessError):
    """A ``.git`` that is not a usable repository."""


@dataclass(frozen=True, kw_only=True)
class WorkTree:
    """The work tree of a repository."""

    top: Path
    own: Path
    """The git folder with the index and ``HEAD``: that of a linked worktree is not ``common``."""
    common: Path


def git(folder: Path, *arguments: str, check: bool = True, stdin: str | None = None) -> str:
    """Return the output of git; raises ``ProcessError`` if it fails, or without ``check`` never.

    Raises ``RepositoryError`` for a damaged repository.
    """
    result = call(folder, *arguments, stdin=stdin)
    if check and result.exit_code:
        message = f"{shlex.join(['git', *arguments])} failed with exit code {result.exit_code}"
        raise ProcessError(f"{message}{process.last_lines(result.stderr)}")
    return result.stdout


def call(folder: Path, *arguments: str, stdin: str | None = None) -> ProcessResult:
    """Call git in ``folder``, with neither programs nor settings of its repository.

    Messages are in English. The exit code is 128 outside of a repository.
    """
    if not folder.is_dir():
        raise ProcessError(
            f"cannot run {shlex.join(['git', *arguments])}: {folder} is not a folder"
        )
    tree = find_work_tree(folder)
    if tree is None:
        return ProcessResult(exit_code=128, stdout="", stderr=f"{NOT_GIT}\n", seconds=0.0)
    return call_on(tree, folder.resolve(), arguments, stdin=stdin)


def call_on(
    tree: WorkTree, folder: Path, arguments: Sequence[str], *, stdin: str | None = None
) -> ProcessResult:
    """Call git in ``folder``, which is in ``tree``."""
    with _git_folder_of(tree) as own:
        result = run_git(own, tree, folder, arguments, stdin=stdin)
        return replace(result, stderr=result.stderr.replace(str(own), str(tree.own)))


def find_work_tree(folder: Path) -> WorkTree | None:
    """Find the repository of a folder as git does; ``None``: it is in none.

    A folder that looks like a bare repository is not one: a repository of someone else can have it
    among its files. Raises ``RepositoryError`` for a ``.git`` that leads nowhere or has another
    owner.
    """
    damaged = None
    for top in (start := folder.resolve(), *start.parents):
        path = top / ".git"
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            if not path.is_symlink():
                continue
            raise _dangling(path, f"it links to {path.readlink()}, which does not exist") from None
        except OSError as error:
            raise _dangling(path, f"it cannot be read: {error.strerror}") from error
        try:
            own = path if stat.S_ISDIR(mode) else _linked_folder(path, mode)
            common = _common_folder(own)
            missing = _missing_part(own, common)
        except OSError as error:
            raise _dangling(path, f"it cannot be read: {error.strerror}") from error
        if missing:
            reason = f"{shown(missing)} is missing"
            if own != path:
                raise _dangling(path, f"it names the repository {shown(own)}, but {reason}")
            damaged = damaged or _dangling(path, reason)  # git looks further up, too
            continue
        tree = WorkTree(top=top, own=own, common=common)
        _refuse_other_owners(tree, path)
        is_bare = own == common and _settings(common).get("core.bare", "").lower() in TRUE
        return None if is_bare else tree
    if damaged:
        raise damaged
    return None


TRUE = ("true", "yes", "on", "1")


def in_work_tree(folder: Path) -> bool:
    """Return whether ``folder`` is in the work tree of a repository."""
    return find_work_tree(folder) is not None


def top_folder(folder: Path) -> Path:
    """Return the top of the work tree that has ``folder``; raises ``ProcessError`` without one."""
    tree = find_work_tree(folder)
    if tree is None:
        raise ProcessError(f"{folder} is not in a git repository", remedy="Name a clone.")
    return tree.top


def user_setting(folder: Path, name: str) -> str | None:
    """Return a setting of the repository, or else of the caller."""
    tree = find_work_tree(folder)
    own = _settings(tree.common) if tree else {}
    return own.get(name) or dict(_user_entries()).get(name)


# Files


def head(folder: Path) -> str | None:
    """Return the commit that ``folder`` is at; ``None``: the repository has none."""
    return git(folder, "rev-parse", "--verify", "--quiet", "HEAD", check=False).strip() or None


def listed_files(folder: Path) -> Iterator[Path]:
    """Yield the existing files that are tracked, or untracked but not ignored.

    Those of submodules and of nested repositories are included. A submodule that is not checked out
    is an empty folder, which is yielded itself.
    """
    listing = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listing.split("\0")):
        path = f"{folder}/{name}"  # for 100,000 files, paths as objects take seconds
        try:
            mode = os.lstat(path).st_mode
        except OSError:  # it was removed, and git still tracks it
            continue
        if stat.S_ISDIR(mode) and has_repository(Path(path)):
            yield from (Path(name) / inner for inner in listed_files(Path(path)))
        else:
            yield Path(name)


def has_repository(path: Path) -> bool:
    """Return whether a folder is the top of a repository; one with an empty ``.git`` is not."""
    if path.is_symlink() or not os.path.lexists(path / ".git"):
        return False
    tree = find_work_tree(path)
    return tree is not None and tree.top == path.resolve()


def submodules(folder: Path) -> dict[Path, str]:
    """Return the folders of submodules below ``folder``, checked out or not, and their commits."""
    listing = git(folder, "ls-files", "-z", "--stage")
    return {folder.resolve() / name: commit for commit, name in SUBMODULE.findall(listing)}


def filters_of(top: Path, paths: Iterable[str]) -> dict[str, str]:
    """Return the filters that attributes name, by path; files without one are left out."""
    names = "".join(f"{path}\0" for path in paths)
    found = git(top, "check-attr", "-z", "--stdin", "filter", stdin=names).split("\0")
    pairs = zip(found[::3], found[2::3], strict=False)
    return {path: name for path, name in pairs if name not in ("unspecified", "unset")}


def is_tracked(path: Path) -> bool:
    """Return whether git tracks a file; not if it is in no repository that git can read."""
    try:
        return bool(git(path.parent, "--literal-pathspecs", "ls-files", "--", path.name))
    except ProcessError:  # the checks before a run report it
        return False


# Finding a repository


def _linked_folder(path: Path, mode: int) -> Path:
    """Return the git folder that a ``.git`` file names; raises ``OSError`` if it cannot be read."""
    if not stat.S_ISREG(mode):
        raise _dangling(path, "it is neither a file nor a folder")
    name, _, target = _read(path).rstrip("\r\n").partition(": ")
    if name != "gitdir" or not target or "\0" in target:
        raise _dangling(path, "got no line `gitdir: FOLDER`, expected one")
    return (path.parent / target).resolve()


def _common_folder(own: Path) -> Path:
    """Return the folder with what all worktrees share."""
    path = own / "commondir"
    return (own / _read(path).rstrip("\r\n")).resolve() if path.is_file() else own


def _missing_part(own: Path, common: Path) -> Path | None:
    """Return what a git folder lacks; ``None``: it is one."""
    head = own / "HEAD"
    if not head.is_file() and not head.is_symlink():
        return head
    return next((it for it in (common / "objects", common / "refs") if not it.is_dir()), None)


def _read(path: Path) -> str:
    """Return the text of a small file, as names of files are decoded."""
    with path.open("rb") as file:
        return os.fsdecode(file.read(LARGEST_FILE))


def shown(path: Path) -> str:
    """Return a path as text; names are bytes that may not be UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def _dangling(path: Path, reason: str) -> RepositoryError:
    remedy = (
        "If the main repository of this worktree or submodule was moved, run `git worktree repair`"
        " there. Else clone the sources again, or give up their commit: "
        f"mv {shlex.quote(str(path))} {shlex.quote(str(path.with_name('git.old')))}"
    )
    return RepositoryError(f"{shown(path)} is not a git repository: {reason}", remedy=remedy)


def _refuse_other_owners(tree: WorkTree, path: Path) -> None:
    """Raise ``RepositoryError`` where git does: for another user's repository, unless it is safe.

    A root user who came by sudo also owns what the user before owns.
    """
    mine = {os.geteuid()}
    if os.geteuid() == 0 and (before := os.environ.get("SUDO_UID", "")).isdecimal():
        mine.add(int(before))
    others = [it for it in (path, tree.top, tree.own) if it.lstat().st_uid not in mine]
    if not others or _is_safe(tree.top):
        return
    owner = others[0].lstat().st_uid
    raise RepositoryError(
        f"dubious ownership in the git repository {shown(tree.top)}:"
        f" {shown(others[0])} belongs to user {owner}, expected {os.geteuid()}",
        remedy=f"git config --global --add safe.directory {shlex.quote(str(tree.top))}",
    )


def _is_safe(top: Path) -> bool:
    """Whether the caller, not the repository, lists a work tree in ``safe.directory``."""
    safe = False
    for key, value in _user_entries():
        if key == "safe.directory":
            named = _expanded(value)
            below = named.name == "*" and top.is_relative_to(named.parent)
            safe = value != "" and (safe or value == "*" or below or named == top)
    return safe


def _expanded(value: str) -> Path:
    """Return a path of a setting; that of an unknown user stays as it is."""
    with suppress(RuntimeError):
        return Path(value).expanduser()
    return Path(value)


# Settings


def _settings(common: Path, name: str = "config") -> dict[str, str]:
    """Return the settings of a repository, without files that they include."""
    path = common / name
    try:
        found = path.stat()
    except OSError:
        return {}
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_FILE:
        message = f"{shown(path)}: got no file of at most {LARGEST_FILE} bytes"
        raise RepositoryError(message, remedy="Clone the repository again.")
    identity = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return dict(_entries_of(("--file", str(path), "--no-includes"), identity, ()))


def _user_entries() -> tuple[tuple[str, str], ...]:
    """Return the caller's settings: of this machine, of the user and of the environment."""
    named = ("HOME", "XDG_CONFIG_HOME")
    known = {
        it: text for it, text in os.environ.items() if it in named or it.startswith("GIT_CONFIG")
    }
    known.pop("GIT_CONFIG", None)  # another repository's, as a hook may set it
    return _entries_of(("--includes",), (), tuple(sorted(known.items())))


@functools.lru_cache(maxsize=256)
def _entries_of(
    options: tuple[str, ...], _: tuple[int, ...], variables: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    environment = {**_environment(), **dict(variables), "GIT_DIR": os.devnull}
    command = ("git", "config", *options, "--list", "-z")
    listing = _start(command, Path("/"), environment, check=True).stdout
    entries = (entry.partition("\n") for entry in listing.split("\0") if entry)
    return tuple((key, value if equals else "true") for key, equals, value in entries)


def _chosen_settings(tree: WorkTree) -> dict[str, str]:
    """Return the settings of a git folder of ours for a work tree."""
    user, own = dict(_user_entries()), _settings(tree.common)
    if own.get("extensions.worktreeconfig", "").lower() in TRUE:
        own |= _settings(tree.own, "config.worktree")
    chosen = {key: value for key, value in user.items() if USER_KEYS.fullmatch(key)}
    chosen |= {key: value for key, value in own.items() if REPOSITORY_KEYS.fullmatch(key)}
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "git")
    for key, name in PATTERN_FILES.items():
        path = tree.top / _expanded(chosen.pop(key, str(base / name)))
        if path.is_file():  # reading a FIFO would not end
            chosen[key] = str(path)
    return {**chosen, **SETTINGS}


def _as_text(settings: Mapping[str, str]) -> str:
    """Return settings in the format of git's files."""
    lines = []
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'[{section}]\n\t{name} = "{quoted}"\n')
    return "".join(lines)


# Calling git


@contextmanager
def _git_folder_of(tree: WorkTree) -> Iterator[Path]:
    """Make a git folder for one call, which reads what ``tree`` stores."""
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as name:
        own = Path(name)
        fill_git_folder(own, tree)
        for path in tree.own.iterdir():
            if path.name.startswith("sharedindex."):
                (own / path.name).symlink_to(path)
            elif HEAD.fullmatch(path.name) and (path.is_file() or path.is_symlink()):
                _copy_head(path, own / path.name)
        yield own


def fill_git_folder(own: Path, tree: WorkTree) -> None:
    """Fill a git folder of ours, except ``HEAD``, the index and objects."""
    text = _as_text(_chosen_settings(tree))
    (own / "config").write_text(text, encoding="utf-8", errors="surrogateescape")
    for name in LINKS:
        if (tree.common / name).exists():
            (own / name).symlink_to(tree.common / name)
    (own / "logs").mkdir()
    for path in (tree.own / "logs" / "HEAD", tree.common / "logs" / "refs"):
        if path.exists():
            (own / "logs" / path.name).symlink_to(path)
    (own / "info").mkdir()
    info = [tree.common / "info" / name for name in ("exclude", "attributes")]
    for patterns in (*info, tree.own / "info" / "sparse-checkout"):
        if patterns.is_file():  # reading a FIFO would not end
            (own / "info" / patterns.name).write_bytes(patterns.read_bytes())
    with (own / "info" / "exclude").open("a") as file:
        file.write(f"\n{TEMPORARY}*/\n")  # the folder for temporary files may be in the tree


def _copy_head(source: Path, target: Path) -> None:
    """Copy a reference; an old one is a link to the file of its branch."""
    if source.is_symlink() and not (link := source.readlink()).is_absolute():
        target.write_bytes(os.fsencode(f"ref: {link}\n"))
    else:
        target.write_bytes(os.fsencode(_read(source)))


def _environment() -> dict[str, str]:
    """Return the caller's environment without what redirects git, which hooks export."""
    inherited = process.inherited_environment()
    kept = {it: value for it, value in inherited.items() if not it.startswith("GIT_")}
    # git is not looked for in a folder of the sources.
    folders = [it for it in kept.get("PATH", os.defpath).split(os.pathsep) if it[:1] == "/"]
    return {**kept, "PATH": os.pathsep.join(folders), "LC_ALL": "C"}


def run_git(
    own: Path, tree: WorkTree, folder: Path, arguments: Sequence[str], *, stdin: str | None = None
) -> ProcessResult:
    """Run git with a git folder of ours."""
    environment = {
        **_environment(),
        "GIT_CONFIG_COUNT": str(len(SETTINGS)),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_DIR": str(own),
        "GIT_INDEX_FILE": str(tree.own / "index"),
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OBJECT_DIRECTORY": str((tree.common / "objects").resolve()),
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_WORK_TREE": str(tree.top),
        # Old versions of git have no GIT_CONFIG_GLOBAL.
        "HOME": str(own),
        "XDG_CONFIG_HOME": str(own),
    }
    for number, (key, value) in enumerate(SETTINGS.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return _start(("git", *arguments), folder, environment, stdin=stdin)


def _start(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    check: bool = False,
    stdin: str | None = None,
) -> ProcessResult:
    try:
        return process.run(
            command,
            cwd=folder,
            environment=environment,
            check=check,
            decoding_errors="surrogateescape",
            timeout_s=GIT_TIMEOUT_S,
            stdin=stdin,
        )
    except process.TimeLimitError as error:
        error.remedy = (
            "Run `git status` in the sources by hand: a file system that does not answer can block"
            " it."
        )
        raise
