"""Find the secret values that this process knows, and hide them in files of results."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import unquote

from ci.util.files import files_below, open_for_replacement
from ci.util.text import MASK, hidden_forms

# Parts of a variable's name that mark a secret.
SECRET_NAME = re.compile(
    "TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|PRIVATE|AUTH(?!OR)", re.IGNORECASE
)
# What comes before the host in an address: a user, or a user and a password.
CREDENTIALS = re.compile(r"(?<=://)(?P<credentials>[^\s/]+)@")
CHUNK = 1 << 20  # bytes that are searched at once
MOST_PIECES = 1 << 10  # of all compressed files: 1 GiB takes 20 s


def secret_values(
    environ: Mapping[str, str], *, addresses: Iterable[str] = (), patterns: Iterable[str] = ()
) -> Iterator[str]:
    """Yield the passwords in ``addresses``, and the values of variables that hold secrets.

    These variables have a name that marks a secret, or one that matches one of ``patterns``. Names
    of existing files are left out.
    """
    patterns = [*patterns]
    for name, value in environ.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns) or (
            SECRET_NAME.search(name) and not os.path.exists(value)  # noqa: PTH110 - false for any text
        ):
            yield value
        elif "://" in value:
            yield from _passwords(value)
    for address in addresses:
        yield from _passwords(address)


def _passwords(text: str) -> Iterator[str]:
    """Yield the passwords in a list of addresses, as written and as meant."""
    for match in CREDENTIALS.finditer(text):
        user, _, password = match["credentials"].partition(":")
        if not password and text.endswith("ssh://", 0, match.start()):
            continue  # elsewhere, a token can be the user name
        yield from {password or user, unquote(password or user)}


def redact_folder(folder: Path) -> list[str]:
    """Hide secret values in all files of a folder; remove compressed files that hold some.

    Returns a note for each file that was changed or removed.
    """
    forms = [form.encode(errors="surrogateescape") for form in hidden_forms()]
    if not forms:
        return []
    notes = []
    room = iter(range(MOST_PIECES))
    for path in files_below(folder):
        name = path.relative_to(folder)
        try:
            if _holds_any(path, forms):
                _rewrite(path, forms)
                notes.append(f"a secret value was hidden in {name}")
            elif path.suffix == ".gz" and _may_hold_compressed(path, forms, room):
                path.unlink()
                notes.append(f"{name} was removed from the results, as it may hold a secret value")
        except OSError as error:
            notes.append(f"{name} was not searched for secret values: {error.strerror}")
    return notes


def _holds_any(path: Path, forms: Sequence[bytes]) -> bool:
    with path.open("rb") as file:
        return any(found for found, _ in _pieces(file, forms))


def _rewrite(path: Path, forms: Sequence[bytes]) -> None:
    with path.open("rb") as file, open_for_replacement(path) as target:
        target.writelines(piece for _, piece in _pieces(file, forms))


def _may_hold_compressed(path: Path, forms: Sequence[bytes], room: Iterator[int]) -> bool:
    """Search a gzip file while there is ``room`` for its pieces; one without may hold a secret."""
    with gzip.open(path, "rb") as file:
        try:
            pieces = zip(room, _pieces(cast(BinaryIO, file), forms), strict=False)
            return any(found for _, (found, _) in pieces) or file.read(1) != b""
        except (gzip.BadGzipFile, EOFError, zlib.error):  # it is no gzip file, or incomplete
            return False


def _pieces(file: BinaryIO, forms: Sequence[bytes]) -> Iterator[tuple[bool, bytes]]:
    """Yield the masked content in pieces, each with whether one of ``forms`` was found."""
    overlap = max(map(len, forms)) - 1
    rest = b""
    while chunk := file.read(CHUNK):
        masked = content = rest + chunk
        for form in forms:
            masked = masked.replace(form, MASK.encode())
        end = max(len(masked) - overlap, 0)  # what follows may be the beginning of a form
        yield masked != content, masked[:end]
        rest = masked[end:]
    yield False, rest
