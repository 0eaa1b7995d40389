"""What every run needs on this machine, and what the first use of ``noxfile.py`` needs.

Standard library only: ``noxfile.py`` checks before anything is installed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from ci.engines.checks import Finding, Severity, check_folder, missing_package, ok, problem, warning
from ci.engines.host.prerequisites import check_headers, check_host_engine, check_python, check_venv
from ci.util.files import user_cache
from ci.util.git import find_work_tree, git
from ci.util.interpreters import (
    Interpreter,
    find_vendors,
    locate,
    own_interpreter,
    read_interpreter,
)
from ci.util.process import ProcessError, run

DOCKER_SOCKET = "unix:///var/run/docker.sock"
CONNECT_S = 2.0  # an engine in this network answers within milliseconds
GIT_S = 5.0  # each of these git commands reads only a few files


def check_git(source: Path) -> Finding:
    """Check git, from which a run takes the commit and the list of source files."""
    folders = (source, *source.resolve().parents)
    try:
        version = run(["git", "--version"], timeout_s=GIT_S).stdout.strip()
    except ProcessError as error:
        if any(os.path.lexists(folder / ".git") for folder in folders):
            expected = "git, since a result names the commit of its sources"
            return missing_package("git", str(error), "git", expected)
        version = "no git"
    try:
        if find_work_tree(source) is not None:
            git(source, "rev-parse", "--git-dir")
            return ok("git", version)
    except ProcessError as error:
        expected = "a repository that git can read"
        remedy = error.remedy or "Clone the sources again."
        return problem("git", str(error), expected=expected, remedy=remedy)
    return warning(
        "git",
        f"{version}; {source} is not in a repository",
        expected="sources in git, since results name the commit",
        remedy=f"Clone the repository, or run: git init {shlex.quote(str(source))}",
    )


def check_results(path: Path) -> Finding:
    """Check the results folder."""
    return check_folder("results", path, remedy="Name another folder with --results.")


def check_first_use(
    root: Path, words: Sequence[str], environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Check the prerequisites of ``python3 noxfile.py WORDS`` where nox is not installed.

    Sessions that run platforms have the prerequisites of `run` and, on the host engine, those of
    that engine. If a site file chooses the engines, or another project's configuration the sources,
    `run` checks the rest: reading these files takes a YAML parser.
    """
    yield check_folder("checkout", root, remedy=f"Copy it: cp -r {shlex.quote(str(root))} ~/")
    split = words.index("--") if "--" in words else len(words)
    of_nox, of_run = words[:split], words[split + 1 :]
    runs = any(word == "release" or word.startswith("build-") for word in of_nox)
    if not runs or {"--list", "-l", "--help", "-h"} & set(of_nox):
        yield check_venv()
        return
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--engine", "--source", "--results", "--config", "--bundle", "--python"):
        options.add_argument(name)
    chosen, _ = options.parse_known_args(of_run)
    yield check_results(root / (chosen.results or environ.get("INFINI_CI_RESULTS") or "results"))
    config = root / (chosen.config or "ci.yaml")
    own = not chosen.bundle and config.resolve().is_relative_to(root)
    if not (chosen.source or own):
        yield check_venv()
        return
    source = root / (chosen.source or "")
    yield check_git(source)
    site = environ.get("INFINI_CI_SITE") or (config.parent / "ci.site.yaml").exists()
    named = any(name.startswith("INFINI_CI_ENGINE_") for name in environ)
    by_itself = chosen.engine in (None, "auto") and not (site or named)
    yield check_venv()  # for the environments of nox
    if chosen.engine == "host" or (by_itself and not docker_answers(environ)):
        path = locate(chosen.python) if chosen.python else sys.executable
        if not chosen.python and check_headers(own_interpreter()).level is Severity.PROBLEM:
            # `run` reads the requirements, and decides whether it uses this one.
            path = find_vendors() or path
        yield check_python(path)
        if isinstance(python := read_interpreter(path), Interpreter):
            yield from check_host_engine(source, environ, pythons=[python])


def docker_answers(environ: Mapping[str, str]) -> bool:
    """Return whether a Docker Engine accepts a connection.

    Also true for an engine that is reached by ssh or by a context: only `run` can connect to
    these, as this takes more than the standard library.
    """
    url = environ.get("DOCKER_HOST") or DOCKER_SOCKET
    home = Path(environ.get("HOME") or "/")
    settings = Path(environ.get("DOCKER_CONFIG") or home / ".docker", "config.json")
    if not environ.get("DOCKER_HOST"):
        chosen = bool(environ.get("DOCKER_CONTEXT"))
        with suppress(OSError):
            chosen |= "currentContext" in settings.read_text(errors="replace")
        if chosen:
            return True
    address = urlsplit(url)
    try:
        if address.scheme == "tcp":
            peer = (address.hostname or "localhost", address.port or 2375)
            socket.create_connection(peer, timeout=CONNECT_S).close()
        elif address.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(CONNECT_S)
                connection.connect(address.path)
    except (OSError, ValueError):
        return False
    return True


def cache_finding() -> Finding:
    """Judge the user's cache folder: a run does without it, an image build does not."""
    remedy = "Name another folder with XDG_CACHE_HOME."
    found = check_folder("cache", user_cache(), remedy=remedy)
    if found.level is not Severity.PROBLEM:
        return found
    expected = "a folder with room, for the compiler cache and the locks of image builds"
    return warning("cache", found.found, expected=expected, remedy=str(found.remedy))
