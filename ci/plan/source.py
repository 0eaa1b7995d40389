"""The source tree on disk: its files, its commit, its archive."""

from __future__ import annotations

import os
import re
import stat
import tarfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ci.errors import InfrastructureError, UsageError
from ci.model.results import RUN_ID
from ci.plan import git_history
from ci.plan.uncommitted import find_changes
from ci.util import git
from ci.util.process import ProcessError
from ci.util.text import counted, first_line, join_names

HISTORIES = frozenset([".git", ".hg"])  # at the top of a tree
# The beginning of a file CACHEDIR.TAG: https://bford.info/cachedir/
CACHE_TAG = b"Signature: 8a477f597d28d172789f06886806bc55"
# https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md, with the program's first name
LFS_POINTER = re.compile(
    rb"version https://(?:git-lfs\.github|hawser\.github)\.com/spec/v1\n"
    rb"(?:ext-.*\n)*oid sha256:[0-9a-f]{64}\nsize [0-9]+\n"
)
LARGEST_POINTER = 1024  # bytes

# Files of git have no time. Fixed, so that archives of equal trees are identical.
TIMESTAMP = 946_684_800  # 2000-01-01
# Zip files, and so wheels, have no earlier time, in any time zone.
OLDEST = 315_619_200  # 1980-01-02
NAMED = 3  # files that are left out for the same reason; the others are counted


@dataclass(frozen=True, kw_only=True)
class SourceState:
    """The commit of a tree, ``None`` outside of git, and whether the tree differs from it."""

    commit: str | None
    dirty: bool
    notes: tuple[str, ...] = ()


def state(folder: Path) -> SourceState:
    """Return the commit that ``folder`` is at, and whether it has uncommitted changes."""
    if not git.in_work_tree(folder):
        return SourceState(commit=None, dirty=False)
    found = find_changes(folder)
    notes = []
    if found.unfiltered:
        count = counted(len(found.unfiltered), "file")
        names = join_names([decode_file_name(name) for name in found.unfiltered])
        what = "the sources count as changed: only a git filter, which is not run, can compare"
        notes = [f"{what} {count}: {names}"]
    return SourceState(commit=git.head(folder), dirty=found.dirty, notes=tuple(notes))


def files(folder: Path, *, packed: bool = False) -> list[Path]:
    """Return the files of the tree, relative to ``folder``, sorted.

    In git: existing files that are tracked, or untracked but not ignored, including those of
    submodules. Outside of git, and in a folder that git ignores: everything but what a build can
    make again (``_reason``). A ``packed`` tree was already filtered and is returned completely.
    """
    listing = _listing(folder, packed=packed)
    found = [path for path in listing.copied if not _is_folder(folder / path)]
    if not found:
        raise UsageError(f"the source {folder} holds no files", remedy="Name a project's folder.")
    return found


# Neither can be copied: reading a FIFO or a device may never end.
SPECIAL_FILES = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, kw_only=True)
class _Listing:
    """The names of a tree, sorted, and why others are left out.

    ``in_git``: only files, whose modes and times are not theirs. Else files and folders.
    """

    in_git: bool
    copied: list[Path]
    left_out: list[tuple[Path, str]]


def _listing(folder: Path, *, packed: bool) -> _Listing:
    if not folder.is_dir():
        raise UsageError(f"the source {folder} is not a folder", remedy="Name an existing folder.")
    found = sorted(git.listed_files(folder)) if not packed and git.in_work_tree(folder) else []
    if found:
        reasons = {path: _special_kind(folder / path) for path in found}
        absent = (path for path in found if _is_folder(folder / path))
        reasons |= dict.fromkeys(absent, "a submodule that is not checked out")
    else:
        reasons = dict(sorted(_walk(folder, packed=packed)))
    return _Listing(
        in_git=bool(found),
        copied=[path for path, reason in reasons.items() if not reason],
        left_out=[(path, reason) for path, reason in reasons.items() if reason],
    )


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _special_kind(path: Path) -> str | None:
    with readable(path):
        return SPECIAL_FILES.get(stat.S_IFMT(path.lstat().st_mode))


def write_archive(
    folder: Path,
    destination: BinaryIO,
    *,
    prefix: str = ".",
    owner: int = 0,
    without: Collection[Path] = (),
    only: Collection[str] = (),
    packed: bool = False,
    timeless: bool = False,
) -> tuple[str, ...]:
    """Write the tree as an uncompressed tar file, and return a line for each omission.

    Links are stored as links that work anywhere. A link that leads out of the tree is left out,
    never followed. Files of git have the modes that git knows, and a fixed time. Others keep
    theirs. The history goes with them if their version may depend on it: see ``git_history``.

    Args:
        prefix: Folder that all names start with; it is part of the archive, its parents are not.
        owner: Numeric user and group of every entry.
        without: Files to skip.
        only: The names at the top that are copied, without a history; by default all.
        packed: As in ``files``.
        timeless: Whether all files have a fixed time.
    """
    listing = _listing(folder, packed=packed)
    has_history = listing.in_git and not only and git_history.travels(folder)
    place = Path(prefix, git_history.place_of(folder) if has_history else ".")
    copied = []
    root = folder.resolve()
    with tarfile.open(fileobj=destination, mode="w", format=tarfile.PAX_FORMAT) as file:
        archive = _SourceArchive(file, Path(prefix), owner)
        for name, reason in listing.left_out:
            archive.left_out.add(name, reason)
        for relative in listing.copied:
            path = folder / relative
            if relative in without or (only and relative.parts[0] not in only):
                continue
            if not _real(path).is_relative_to(root):
                archive.left_out.add(relative, "a link out of the tree")
                continue
            copied.append(relative)
            entry = archive.entry(place / relative)
            with readable(path):
                status = path.lstat()
            if not listing.in_git:
                archive.keep_mode(entry, relative, status)
                if not timeless:
                    archive.keep_time(entry, relative, status)
            elif status.st_mode & 0o100:
                entry.mode = 0o755
            if archive.add(entry, path, root):
                why = "Git LFS has it: run `git lfs pull` in a clone"
                archive.left_out.add(relative, why, "the content of {}")
        if has_history:
            archive.add_history(folder, copied)
    return archive.left_out.lines()


class _SourceArchive:
    """An archive of sources, and what it lacks of them."""

    def __init__(self, archive: tarfile.TarFile, prefix: Path, owner: int) -> None:
        self.left_out = _Reasons()
        self._archive, self._prefix, self._owner = archive, prefix, owner
        self._folders = {Path(), *prefix.parents}  # that need no further entry

    def entry(self, name: Path) -> tarfile.TarInfo:
        """Return the entry of a file that is not a program."""
        entry = tarfile.TarInfo(name.as_posix())
        entry.uid = entry.gid = self._owner
        entry.mtime = TIMESTAMP
        return entry

    def _add_folders(self, folder: Path) -> None:
        """Add a folder and its parents, those that are not in the archive yet."""
        for each in reversed((folder, *folder.parents)):
            if each not in self._folders:
                self._folders.add(each)
                entry = self.entry(each)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                self._archive.addfile(entry)

    def add(self, entry: tarfile.TarInfo, path: Path, root: Path) -> bool:
        """Add a folder, a link or a file; return whether the file is a pointer of Git LFS."""
        self._add_folders(Path(entry.name).parent)
        if _is_folder(path):
            self._folders.add(Path(entry.name))
            entry.type = tarfile.DIRTYPE
            self._archive.addfile(entry)
            return False
        if path.is_symlink():
            entry.type, entry.mode = tarfile.SYMTYPE, 0o777
            with readable(path):
                entry.linkname = _link_target(path, root)
            self._archive.addfile(entry)
            return False
        with readable(path):
            content = path.open("rb")
        with content:
            entry.size = os.fstat(content.fileno()).st_size
            is_pointer = entry.size < LARGEST_POINTER and LFS_POINTER.match(content.read())
            content.seek(0)
            try:
                self._archive.addfile(entry, content)
            except OSError as error:
                if error.errno is not None:  # of the destination
                    raise
                raise _unreadable(path, "it became shorter while it was copied") from error
        return bool(is_pointer)

    def add_history(self, folder: Path, copied: Collection[Path]) -> None:
        """Add the repository of ``ci.plan.git_history``; without one most builds still work."""
        try:
            with git_history.copied_history(folder, copied) as made:
                for relative in made.names:
                    path, name = made.folder / relative, self._prefix / relative
                    if path.is_dir():
                        self._add_folders(name)
                    else:
                        self.add(self.entry(name), path, made.folder)
                if made.lack:
                    self.left_out.add(Path("tags"), made.lack)
        except ProcessError as error:
            reason = f"git cannot copy the history: {first_line(str(error))}"
            self.left_out.add(Path(".git"), reason)

    def keep_mode(self, entry: tarfile.TarInfo, name: Path, status: os.stat_result) -> None:
        """Give an entry the mode of its file, as far as a build can work with it."""
        needed = 0o700 if stat.S_ISDIR(status.st_mode) else 0o400  # of the owner, who runs stages
        entry.mode = status.st_mode & 0o777 | needed
        if stat.S_ISDIR(status.st_mode) and ~status.st_mode & needed:
            why = "a folder in which the owner cannot write"
            self.left_out.add(name, why, "the mode of {}")
        elif stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            self.left_out.add(name, "its user or group would run it", "the set-ID bits of {}")

    def keep_time(self, entry: tarfile.TarInfo, name: Path, status: os.stat_result) -> None:
        """Give an entry the time of its file, if a wheel can hold it."""
        if status.st_mtime >= OLDEST:
            # An integer where possible: anything else takes 1 KiB more.
            time = status.st_mtime
            entry.mtime = int(time) if time.is_integer() else time
        elif not stat.S_ISLNK(status.st_mode):
            why = "before 1980: a zip file, such as a wheel, cannot have it"
            self.left_out.add(name, why, "the time of {}")


class _Reasons:
    """Why names, or what else a copy lacks, are left out."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], list[str]] = {}

    def add(self, name: Path, reason: str, what: str = "{}") -> None:
        """Add a name; ``what`` is the part of it that is left out."""
        self._names.setdefault((reason, what), []).append(decode_file_name(name))

    def lines(self) -> tuple[str, ...]:
        """Return the lines of notes: one for each of a few names, else one for each reason."""
        lines = []
        for (reason, what), names in self._names.items():
            if (more := len(names) - NAMED) > 0:
                names = [f"{', '.join(names[:NAMED])} and {more:,} more"]
            lines += [f"{what.format(name)} ({reason})" for name in names]
        return tuple(lines)


def decode_file_name(name: Path | str) -> str:
    """Return the name of a file as text; names are bytes that may not be UTF-8."""
    return os.fsencode(name).decode(errors="replace")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise ``InfrastructureError`` for a source file that cannot be read."""
    try:
        yield
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error


def _unreadable(path: Path, reason: str) -> InfrastructureError:
    message = f"{decode_file_name(path)}: this file of the sources cannot be read: {reason}"
    remedy = "Check its permissions. If something changes the sources, run again without that."
    return InfrastructureError(message, remedy=remedy)


def _link_target(path: Path, root: Path) -> str:
    """Return a link's target as a path that is valid wherever the tree is."""
    target, parent = path.readlink(), _real(path.parent)
    way = Path(os.path.normpath(parent.relative_to(root) / target))
    if not way.is_absolute() and ".." not in way.parts:
        return str(target)
    return os.path.relpath(_real(path), parent)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises for cyclic links


def _walk(folder: Path, *, packed: bool) -> Iterator[tuple[Path, str | None]]:
    """Yield every file, link and folder below ``folder``, and why it is left out."""

    def fail(error: OSError) -> None:
        raise _unreadable(Path(error.filename), error.strerror or str(error)) from error

    for parent, directories, names in os.walk(folder, onerror=fail):
        here, is_top = Path(parent), parent == str(folder)
        relative = here.relative_to(folder)
        if not is_top:
            reason = None if packed else _reason(here, directories, names)
            yield relative, reason
            if reason:
                directories.clear()
                continue
        histories = HISTORIES if is_top and not packed else frozenset()
        links = [name for name in directories if (here / name).is_symlink()]
        for name in (*names, *directories):
            if name in histories:
                yield relative / name, "the history"
            elif name in links or name not in directories:
                yield relative / name, _special_kind(here / name)
        directories[:] = [name for name in directories if name not in histories]


def _reason(folder: Path, directories: Sequence[str], names: Sequence[str]) -> str | None:
    """Why a folder outside of git is left out: what it is, whatever its name."""
    has_python = "bin" in directories or "Scripts" in directories
    if ("pyvenv.cfg" in names and has_python) or (folder / "conda-meta/history").is_file():
        return "a Python environment"
    if any(RUN_ID.fullmatch(name) for name in (folder.name, *directories)):
        return "results of this program"
    if "CACHEDIR.TAG" in names and _is_cache(folder / "CACHEDIR.TAG"):
        return "a cache: it has a CACHEDIR.TAG"
    modules = {name.split(".")[0] for name in names if name.endswith(".pyc")}
    is_bytecode = folder.name == "__pycache__" and names and not directories
    if is_bytecode and all((folder.parent / f"{name}.py").is_file() for name in modules):
        return "bytecode of the sources"
    return None


def _is_cache(tag: Path) -> bool:
    with readable(tag), tag.open("rb") as file:
        return file.read(len(CACHE_TAG)) == CACHE_TAG
