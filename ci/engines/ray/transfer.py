"""Copies between this machine and a host, in pieces that Ray keeps out of its object store.

Folders go to a host as archives, once for each content and host. Results come back as one archive.
A copy goes on where a lost connection ended it, and its digest is compared at its end.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import ChainMap, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from time import sleep
from typing import Any, BinaryIO, Protocol

from ci.engines.ray.actor import ARCHIVE, BUSY, COMPLETE, MOST_SENT
from ci.engines.ray.messages import PROGRAM, SOURCE, WHEELHOUSE, Archive
from ci.errors import InfrastructureError
from ci.model.plan import RunPlan
from ci.plan import source
from ci.util.files import PROGRAM_FOLDERS, PROGRAM_ROOT

PIECE = MOST_SENT  # bytes; the same holds for arguments
AT_ONCE = 16  # calls without an answer
MOST_TIMES = 3  # that a damaged copy is repeated
BUSY_S = 0.5


class Call(Protocol):
    """Waits for the answer of a call."""

    def __call__(self, make: Callable[[], Any], made: Any = None, /) -> Any:
        """Return the answer to ``made``, or to ``make``, which may be called several times."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A folder's archive: equal folders have equal digests."""

    file: io.BufferedRandom  # forked processes share its position, which nothing here depends on
    size: int
    digest: str
    left_out: tuple[str, ...]

    @classmethod
    def of_folder(cls, folder: Path, *, packed: bool = False, only: tuple[str, ...] = ()) -> Tree:
        """Pack a folder, or those of its folders that ``only`` names."""
        file = TemporaryFile()  # noqa: SIM115 - the caller closes it
        # Wheels and this program are equal whenever they were downloaded or installed.
        timeless = packed or bool(only)
        try:
            left_out = source.write_archive(
                folder, file, packed=packed, only=only, timeless=timeless
            )
        except BaseException:
            file.close()
            raise
        size = file.tell()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(file=file, size=size, digest=digest, left_out=left_out)

    def pieces(self, offset: int) -> Iterator[bytes]:
        """Yield the archive from ``offset`` on."""
        for at in range(offset, self.size, PIECE):
            yield os.pread(self.file.fileno(), PIECE, at)


class Trees:
    """The archives that the platforms of a run need on their hosts, each packed once.

    ``shared`` are those of an earlier process, which closes them.
    """

    def __init__(self, shared: Trees | None = None) -> None:
        self._trees: dict[tuple[Path, bool, tuple[str, ...]], Tree] = {}
        self._known = ChainMap(self._trees, shared._trees if shared else {})

    def of(self, plan: RunPlan) -> dict[str, Tree]:
        """Return the folders of this machine that a platform needs on its host."""
        trees = {SOURCE: self._packed(plan.source, packed=plan.packed), PROGRAM: self.program()}
        if plan.network.wheelhouse:
            trees[WHEELHOUSE] = self._packed(plan.network.wheelhouse, packed=True)
        return trees

    def program(self) -> Tree:
        """Return this program."""
        return self._packed(PROGRAM_ROOT, only=PROGRAM_FOLDERS)

    def _packed(self, folder: Path, *, packed: bool = False, only: tuple[str, ...] = ()) -> Tree:
        key = (folder, packed, only)
        if key not in self._known:
            self._trees[key] = Tree.of_folder(folder, packed=packed, only=only)
        return self._known[key]

    def close(self) -> None:
        """Close what this process has packed."""
        for tree in self._trees.values():
            tree.file.close()
        self._trees.clear()


def send(tree: Tree, actor: Any, call: Call) -> None:
    """Send a tree to a host that does not have it."""
    for _ in range(MOST_TIMES):
        while True:
            size = call(partial(actor.offer.remote, tree.digest))
            if size == BUSY:
                sleep(BUSY_S)
                continue
            if size == COMPLETE:
                return
            if _send_from(size, tree, actor, call):
                break
        if call(partial(actor.complete.remote, tree.digest)):
            return
    raise InfrastructureError(
        f"the sources arrived damaged {MOST_TIMES} times on a host of the pool",
        remedy="Check the disk and the memory of the host and of this machine.",
    )


def _send_from(offset: int, tree: Tree, actor: Any, call: Call) -> bool:
    """Send the rest of a tree; return whether all of it arrived."""
    sent: deque[Any] = deque()
    ask = partial(actor.offer.remote, tree.digest)  # how far it is, if an answer was lost
    for piece in tree.pieces(offset):
        sent.append(actor.write.remote(tree.digest, offset, piece))
        offset += len(piece)
        if len(sent) >= AT_ONCE:
            call(ask, sent.popleft())
    arrived = [call(ask, it) for it in sent]
    return not arrived or arrived[-1] == tree.size


@contextmanager
def fetched(archive: Archive, actor: Any, call: Call, folder: Path) -> Iterator[BinaryIO]:
    """Yield the archive of a platform's results; it is in ``folder`` until the block ends.

    A part that an earlier call, or an earlier caller, has left there is not copied again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".{archive.digest}.part"
    for _ in range(MOST_TIMES):
        with path.open("ab") as part:
            for piece in _pieces(range(part.tell(), archive.size, PIECE), actor, call):
                part.write(piece)
        with path.open("rb") as whole:
            if hashlib.file_digest(whole, "sha256").hexdigest() == archive.digest:
                whole.seek(0)
                yield whole
                path.unlink()
                return
        path.unlink()
    raise InfrastructureError(
        f"the results arrived damaged {MOST_TIMES} times from a host of the pool",
        remedy="Check the disk and the memory of the host and of this machine.",
    )


def _pieces(offsets: Iterable[int], actor: Any, call: Call) -> Iterator[bytes]:
    """Yield the pieces of the archive on a host; several are under way at once."""
    rest = iter(offsets)
    asked: deque[tuple[int, Any]] = deque()
    while True:
        for offset in islice(rest, AT_ONCE - len(asked)):
            asked.append((offset, actor.read.remote(ARCHIVE, offset, PIECE)))
        if not asked:
            return
        offset, reference = asked.popleft()
        yield call(partial(actor.read.remote, ARCHIVE, offset, PIECE), reference)
