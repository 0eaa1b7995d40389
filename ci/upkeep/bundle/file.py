"""The file of a bundle: write its members with their digests, and verify them."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from io import SEEK_END, BufferedIOBase, BytesIO
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from ci.errors import UsageError
from ci.plan.bundle import DOCUMENT, FOLDER, VERSION, BundleDocument, Member
from ci.plan.source import TIMESTAMP
from ci.util.files import open_for_replacement
from ci.util.invocation import PROGRAM_NAME
from ci.util.lines import parse_object
from ci.util.tar import TAR_ERRORS

COPY_REMEDY = f"Copy the bundle again, or rebuild it with `{PROGRAM_NAME} bundle`."
LARGEST_DOCUMENT = 2**24  # bytes; a few hundred for each member


class BundleWriter:
    """Adds members and remembers their digests."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self.members: dict[str, Member] = {}

    def add(self, name: str, content: BufferedIOBase, *, executable: bool = False) -> None:
        """Add a member with the bytes of ``content``."""
        content.seek(0)
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        entry = tarfile.TarInfo(FOLDER + name)
        entry.size, entry.mtime = content.seek(0, SEEK_END), TIMESTAMP
        entry.mode = 0o755 if executable else 0o644
        content.seek(0)
        self._archive.addfile(entry, content)
        self.members[name] = Member(sha256=digest, size=entry.size)

    def add_text(self, name: str, text: str) -> None:
        """Add a small file."""
        self.add(name, BytesIO(text.encode()))

    def add_file(self, name: str, path: Path) -> None:
        """Add a file of this machine."""
        with path.open("rb") as content:
            self.add(name, content, executable=bool(path.stat().st_mode & 0o100))


@contextmanager
def new_bundle(path: Path) -> Iterator[BundleWriter]:
    """Write a bundle, which appears at ``path`` only if the block ends without an error."""
    with (
        open_for_replacement(path) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        yield BundleWriter(archive)


class BundleReader:
    """The members of a bundle; their content is not trusted before ``verify``."""

    def __init__(self, path: Path, archive: tarfile.TarFile) -> None:
        self.path = path
        self._archive = archive
        self._entries = _entries(path, archive)
        self.document = _document(path, self.open(DOCUMENT))
        sizes = {name: entry.size for name, entry in self._entries.items() if name != DOCUMENT}
        expected = {name: member.size for name, member in self.document.members.items()}
        for name in sorted(sizes.keys() | expected.keys()):
            got, wanted = (
                f"{of[name]:,} bytes" if name in of else "nothing" for of in (sizes, expected)
            )
            if got != wanted:
                raise _bundle_error(path, f"{name}: {got}, expected {wanted}")

    def open(self, name: str) -> BufferedIOBase:
        """Open a member for reading."""
        return cast(BufferedIOBase, self._archive.extractfile(self._entries[name]))

    def names(self, folder: str) -> list[str]:
        """Return the members below ``folder``, which ends with a slash."""
        return sorted(name for name in self.document.members if name.startswith(folder))

    def verify(self, *, without: Collection[str]) -> None:
        """Compare the digests of all members except ``without``; raises ``UsageError``."""
        for name, member in self.document.members.items():
            if name in without:
                continue
            digest = hashlib.file_digest(self.open(name), "sha256").hexdigest()
            if digest != member.sha256:
                message = f"{name}: sha256 is {digest}, expected {member.sha256}"
                raise _bundle_error(self.path, message)


@contextmanager
def open_archive(path: Path) -> Iterator[BundleReader]:
    """Open a bundle; raises ``UsageError`` for another file, or for an incomplete bundle."""
    try:
        archive = tarfile.open(path, mode="r:")  # noqa: SIM115 - closed below
    except OSError as error:
        message = f"--bundle: {path} cannot be read: {error.strerror}"
        remedy = f"Name a file that `{PROGRAM_NAME} bundle` wrote."
        raise UsageError(message, remedy=remedy) from None
    except TAR_ERRORS as error:
        raise _bundle_error(path, f"not a tar file: {error}") from None
    with archive:
        yield BundleReader(path, archive)


def _entries(path: Path, archive: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    entries: dict[str, tarfile.TarInfo] = {}
    end = path.stat().st_size
    try:
        for entry in archive:
            name = entry.name.removeprefix(FOLDER)
            if name == entry.name or not entry.isreg() or entry.size < 0 or name in entries:
                raise _bundle_error(path, f"{entry.name} is not a valid member of a bundle")
            if entry.offset_data + entry.size > end:
                raise _bundle_error(path, f"it ends within {name}, after {end:,} bytes")
            entries[name] = entry
    except TAR_ERRORS as error:  # of a damaged header
        raise _bundle_error(path, f"it ends early, after {end:,} bytes: {error}") from None
    if DOCUMENT not in entries:
        raise _bundle_error(path, f"its last member, {DOCUMENT}, is missing")
    return entries


def _document(path: Path, file: BufferedIOBase) -> BundleDocument:
    try:
        content = parse_object(file.read(LARGEST_DOCUMENT).decode())
    except ValueError as error:
        raise _bundle_error(path, f"{DOCUMENT}: {error}") from None
    if (version := content.get("version")) != VERSION:
        message = f"{path}: a bundle of version {version!r:.100}, expected version {VERSION}"
        remedy = "Run it with the program that it contains: see its README.md."
        raise UsageError(message, remedy=remedy)
    try:
        return BundleDocument.model_validate(content)
    except ValidationError as error:
        raise _bundle_error(path, f"{DOCUMENT}: {error}") from None


def _bundle_error(path: Path, why: str) -> UsageError:
    return UsageError(f"{path}: not a complete, unchanged bundle: {why}", remedy=COPY_REMEDY)
