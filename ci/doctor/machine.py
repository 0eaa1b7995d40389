"""This machine: git, where results go, and what the host engine needs."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.filesize import decimal

from ci.doctor.findings import Finding, ok, problem, warning
from ci.process import ProcessError, run

LITTLE_BYTES = 5 * 10**9  # less has been too little for one platform's build
TOO_LITTLE_BYTES = 5 * 10**8
GC = "python -m ci gc removes what old runs left."


def git(source: Path) -> Iterator[Finding]:
    """The commit of a result is git's, and so is the list of files that a run takes."""
    try:
        version = run(["git", "--version"], timeout_s=5).stdout.strip()
    except ProcessError as error:
        yield problem(
            "git", str(error), expected="git: results are of a commit", remedy="Install git."
        )
        return
    inside = run(["git", "-C", str(source), "rev-parse", "--git-dir"], check=False, timeout_s=5)
    if inside.exit_code == 0:
        yield ok("git", version)
        return
    yield warning(
        "git",
        f"{version}; {source} is in no repository",
        expected="sources in git: without it no result says which commit it is of",
        remedy="git init, or git config --global --add safe.directory if it is another user's.",
    )


def results(folder: Path) -> Iterator[Finding]:
    """Where results go: there must be room, and the right to write."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        yield problem(
            "results",
            f"{there} cannot be written to",
            expected="a folder of yours",
            remedy="Name another with --results or INFINI_CI_RESULTS.",
        )
        return
    free = shutil.disk_usage(there).free
    yield disk("results", f"{folder.absolute()}", free, remedy="Free some, or name another folder.")


def disk(subject: str, where: str, free: int, *, remedy: str) -> Finding:
    """Judge how much is free."""
    found = f"{where}: {decimal(free)} free"
    remedy = f"{GC} {remedy}"
    if free >= LITTLE_BYTES:
        return ok(subject, found)
    if free >= TOO_LITTLE_BYTES:
        return warning(subject, found, expected=decimal(LITTLE_BYTES), remedy=remedy)
    return problem(subject, found, expected=decimal(LITTLE_BYTES), remedy=remedy)


def host_engine(note: str | None) -> Iterator[Finding]:
    """The host engine: a virtual environment of this Python in the temporary folder."""
    subject = "engine host"
    if note is not None:
        yield warning(
            subject,
            f"runs go to this machine, {note}",
            expected="the engine that is named there",
            remedy="Start it, correct the address, or unset it.",
        )
    python = f"a virtual environment on this machine, Python {platform.python_version()}"
    if importlib.util.find_spec("ensurepip") is None:
        yield problem(
            subject,
            f"{python} has no ensurepip, so it makes no virtual environment",
            remedy="Install it: apt install python3-venv",
        )
    else:
        processors = len(os.sched_getaffinity(0))
        yield ok(subject, f"{python}, {platform.machine()}, {processors} processors")
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    yield disk("disk of engine host", folder, free, remedy="Or name another folder with TMPDIR.")
