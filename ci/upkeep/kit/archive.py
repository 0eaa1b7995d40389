"""Runs in one compressed file, as a kit's report has them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ci.engines.archives import chunks_of, extract
from ci.errors import UsageError
from ci.model.plan import ResultLimits
from ci.store.importing import LARGEST_RUN, MOST_FILES
from ci.util.text import os_reason

LIMITS = ResultLimits(total_bytes=LARGEST_RUN, entries=MOST_FILES)


@contextmanager
def unpack_report(path: Path) -> Iterator[Path]:
    """Unpack a file of runs, which may come from anywhere, into a temporary folder.

    Raises ``UsageError`` if any of it is damaged, or is no regular file or folder.
    """
    with TemporaryDirectory(prefix="infini-ci-report-") as folder:
        try:
            with gzip.open(path) as archive:
                refused = extract(chunks_of(archive), Path(folder), limits=LIMITS)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            refused = (str(error),)
        except OSError as error:
            remedy = "Name the report of a kit."
            raise UsageError(f"{path}: cannot be read: {os_reason(error)}", remedy=remedy) from None
        if refused:
            message = f"{path}: got a damaged or unsafe archive: {refused[0]}, expected a report"
            raise UsageError(message, remedy="Copy the report again from its kit.")
        yield Path(folder)
