"""Print what the Python of the stages has installed, and the project in the current folder lacks.

The agent passes this text to that Python, which may be of another version than its own.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import os
import platform
import re
import sys
from contextlib import suppress
from fnmatch import fnmatch
from functools import partial
from glob import escape as glob_escape
from glob import glob
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution, distributions
from itertools import islice
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote

MOST_INSTALLED = 100  # distributions from files
MOST_HASHED = 1 << 30  # bytes of one, which take 2 s
PIECE = 1 << 20
ADDED_BY_PIP = ("INSTALLER", "REQUESTED", "direct_url.json")
MOST_ORIGINS = 400  # packages; of the largest vendor's images, the installer's reports name fewer
# The list of files and its signatures, and what Python makes.
WITHOUT_HASH = re.compile(r"[^/]+\.dist-info/RECORD(\.jws|\.p7s)?|(.*/)?__pycache__/[^/]+\.pyc")
USER = re.compile(r"^([\w+.-]+://)?(?!git@[^/@]*(?:/|$))[^/]*@")  # that of git is no secret
IS_SAFE = getattr(sys.flags, "safe_path", False)  # the current folder is not searched


def main() -> None:
    """Print one object of JSON.

    The arguments are the pattern of pip's reports in the folder of the environment, and further
    reports, newest last.
    """
    _, _, pattern, *reports = sys.argv
    named = list(found_of(lambda it: (it, it.metadata), distributions()))  # each parsed once
    entries = [entry for entry, _ in named]
    packages = {entry["Name"]: entry["Version"] for _, entry in named if entry["Name"]}
    try:
        unmet = unmet_build_requirements(packages) if os.path.exists("pyproject.toml") else []
    except Exception:
        unmet = []
    copies = found_of(lambda it: (it, is_copy_of_this_project(it)), entries)
    own = [entry for entry, is_copy in copies if is_copy]
    try:
        files = [str(file) for it in own for file in it.files or ()]
        unpackaged = missing_modules(files, [it.metadata["Name"] for it in own])
    except Exception:  # any tool may have written the metadata
        files, unpackaged = [], []
    missing = filter(is_uncompiled_in_the_sources, files)
    uncompiled = sorted(file.partition(".")[0].replace("/", ".") for file in missing)
    facts = {"python": platform.python_version(), "packages": packages, "uncompiled": uncompiled}
    more = {"unpackaged": unpackaged, "unmet": unmet, "installed_files": installed_files(entries)}
    made = glob(os.path.join(glob_escape(sys.prefix), pattern))
    stack = {
        "origins": origins(entries, [*sorted(made), *reports]),
        "torch_builds": torch_builds(entries),
    }
    json.dump({**facts, **more, **stack}, sys.stdout)


def found_of(find: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """Yield what is found of each item; nothing of a damaged one: any tool may have written it."""
    for item in items:
        with suppress(Exception):
            yield find(item)


def origins(entries: Iterable[Distribution], reports: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the file or the commit that each distribution came from, by its name.

    Installers record it for what had an address (PEP 610). For what an index had, only the report
    of pip has it. Of neither, nothing is known.
    """
    items = (item for report in found_of(read_report, reports) for item in report)
    reported = dict(found_of(reported_origin, items))

    def named_origin(entry: Distribution) -> tuple[str, dict[str, Any]]:
        name = _normal(entry.metadata["Name"])
        direct = origin_of(entry)
        origin = file_origin(direct or reported.get((name, entry.version), {}))
        return name, {**origin, "direct": bool(direct)} if origin else {}

    found: dict[str, dict[str, Any]] = {}
    for name, origin in found_of(named_origin, entries):
        if origin:
            found.setdefault(name, origin)  # of two, the first is imported
    return dict(islice(found.items(), MOST_ORIGINS))


def read_report(path: str) -> list[dict[str, Any]]:
    with open(path, "rb") as file:
        installed: list[dict[str, Any]] = json.load(file)["install"]
    return [*installed]


def reported_origin(item: Mapping[str, Any]) -> tuple[tuple[str, str], Mapping[str, Any]]:
    """Return the name and the version of a package that pip installed, and where it was from."""
    metadata = item["metadata"]
    return (_normal(metadata["name"]), str(metadata["version"])), item["download_info"]


def file_origin(origin: Mapping[str, Any]) -> dict[str, str]:
    """Return the address and the SHA-256 or the commit; empty for a folder, which may change."""
    facts = {"url": public_address(origin.get("url", ""))}
    if origin.get("subdirectory"):
        facts["subdirectory"] = origin["subdirectory"]
    vcs = origin.get("vcs_info")
    if vcs:
        return {**facts, "vcs": vcs["vcs"], "commit": vcs["commit_id"]}
    digest = archive_digest(origin.get("archive_info") or {})
    return {**facts, "sha256": digest} if digest else {}


def public_address(url: str) -> str:
    """Return an address without what may hold a password: the user, the query and the fragment."""
    return USER.sub(r"\1", re.split("[?#]", url)[0])


def archive_digest(archive: Mapping[str, Any]) -> str:
    _, _, old = archive.get("hash", "").partition("sha256=")  # pip before 23.1
    digest: str = archive.get("hashes", {}).get("sha256") or old
    return digest


def torch_builds(entries: Iterable[Distribution]) -> dict[str, dict[str, str]]:
    """Return how torch and each of its extensions was built, as their own files state it.

    ``git_version`` is the commit; ``cuda``, ``hip`` and such are versions of SDKs. ``tag`` is that
    of the wheel.
    """

    def named_build(entry: Distribution) -> tuple[str, dict[str, str]]:
        name = _normal(entry.metadata["Name"])
        path = str(entry.locate_file(f"{name.replace('-', '_')}/version.py"))
        if not name.startswith("torch") or not os.path.isfile(path):
            return name, {}
        with open(path, encoding="utf-8") as file:
            build = stated_texts(file.read())
        tags = re.findall(r"^Tag: *(\S+)", entry.read_text("WHEEL") or "", re.MULTILINE)
        return name, {**build, **({"tag": ".".join(tags)} if tags else {})}

    found: dict[str, dict[str, str]] = {}
    for name, build in found_of(named_build, entries):
        if build:
            found.setdefault(name, build)
    return found


def stated_texts(module: str) -> dict[str, str]:
    """Return the texts that a module assigns to public names, without running it."""
    found = {}
    for line in ast.parse(module).body:
        if isinstance(line, (ast.Assign, ast.AnnAssign)) and line.value is not None:
            targets = line.targets if isinstance(line, ast.Assign) else [line.target]
            value = line.value.value if isinstance(line.value, ast.Constant) else None
            for target in targets:
                if isinstance(target, ast.Name) and isinstance(value, str):
                    found[target.id.strip("_")] = value[:200]
    return found


def unmet_build_requirements(packages: Mapping[str, str]) -> list[str]:
    try:
        toml = import_module("tomllib")
    except ImportError:
        toml = import_module("pip._vendor.tomli")
    parse = import_module("pip._vendor.packaging.requirements").Requirement
    versions = {_normal(name): version for name, version in packages.items()}

    def is_met(requirement: Any) -> bool:
        version = versions.get(_normal(requirement.name))
        return version is not None and requirement.specifier.contains(version, prereleases=True)

    with open("pyproject.toml", "rb") as file:
        required = toml.load(file)["build-system"]["requires"]
    asked = [it for it in map(parse, required) if not it.marker or it.marker.evaluate()]
    return [str(it) for it in asked if not is_met(it)]


def _normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def is_copy_of_this_project(entry: Distribution) -> bool:
    """Return whether it was built from the current folder, and is not imported from there."""
    origin = origin_of(entry)
    path = unquote(origin.get("url", "").partition("file://")[2])
    if "archive_info" in origin:  # built from the sources
        return os.path.realpath(path).startswith(os.path.join(os.path.realpath("."), ""))
    editable = origin.get("dir_info", {}).get("editable")
    return not editable and os.path.isdir(path) and os.path.samefile(path, ".")


def origin_of(entry: Distribution) -> dict[str, Any]:
    """Return what an installer recorded (PEP 610); empty for what an index had."""
    origin: dict[str, Any] = json.loads(entry.read_text("direct_url.json") or "{}")
    return origin


def installed_files(entries: Iterable[Distribution]) -> list[dict[str, Any]]:
    """Return each distribution that was installed from a file: its name, SHA-256, and changes.

    ``altered`` is the number of its files that were changed or removed since, or that have no hash
    to prove the contrary; ``None``: too large, or no list of its files.
    ``record`` stands for the hashes of its files. ``shadowed`` are its packages and modules that
    the current folder has too.
    """

    def installed_file(entry: Distribution) -> dict[str, Any]:
        origin = origin_of(entry)
        archive = origin.get("archive_info")
        if archive is None:
            return {}
        name = unquote(public_address(origin.get("url", "")).rpartition("/")[2])
        facts = {"altered": altered_files(entry), "shadowed": shadowed_modules(entry)}
        digest = archive_digest(archive)
        return {"name": name, "sha256": digest, "record": record_digest(entry), **facts}

    return [*islice(filter(None, found_of(installed_file, entries)), MOST_INSTALLED)]


def record_digest(entry: Distribution) -> str:
    """Return a digest of the hashes that the wheel brought: pip adds files, and scripts."""
    files = [it for it in entry.files or () if it.name not in ADDED_BY_PIP and it.parts[0] != ".."]
    hashes = [(it, it.hash) for it in files]
    lines = [f"{path},{it.mode}={it.value}" for path, it in hashes if it is not None]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def shadowed_modules(entry: Distribution) -> list[str]:
    tops = {str(file).partition("/")[0] for file in entry.files or ()}
    packages = {it for it in tops if os.path.isfile(os.path.join(it, "__init__.py"))}
    modules = {it[: -len(".py")] for it in tops if it.endswith(".py") and os.path.isfile(it)}
    return [] if IS_SAFE else sorted(packages | modules)


def altered_files(entry: Distribution) -> int | None:
    altered, room = 0, MOST_HASHED
    if entry.files is None:
        return None
    for file in entry.files:
        if file.hash is None:
            altered += not WITHOUT_HASH.fullmatch(file.as_posix())
            continue
        path = str(file.locate())
        room -= os.path.getsize(path) if os.path.isfile(path) else 0
        if room < 0:
            return None
        altered += not is_unchanged(path, file.hash.mode, file.hash.value)
    return altered


def is_unchanged(path: str, algorithm: str, value: str) -> bool:
    if not os.path.isfile(path):
        return False
    digest = hashlib.new(algorithm)
    with open(path, "rb") as content:
        for piece in iter(partial(content.read, PIECE), b""):
            digest.update(piece)
    return base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=") == value


def missing_modules(installed: Iterable[str], projects: Sequence[str]) -> list[str]:
    """Return the modules of the sources that are not installed."""
    if IS_SAFE or not projects:
        return []
    roots = {file.partition("/")[0] for file in installed if "/" in file}
    roots |= {re.sub("[-.]", "_", name) for name in projects}
    sources = (it for it in roots if os.path.isfile(os.path.join(it, "__init__.py")))
    files = {file for it in sources for file in modules_in_the_sources(it)} - {*installed}
    names = (file[: -len(".py")].replace("/", ".") for file in files)
    return sorted(re.sub(r"\.__init__$", "", name) for name in names)


def modules_in_the_sources(package: str) -> Iterator[str]:
    """Yield the modules of a package, without those of tests, which are often not installed."""
    tree = [(folder, names) for folder, _, names in os.walk(package)]
    usual = ("test", "tests")
    tests = [it for it, names in tree if os.path.basename(it) in usual or any(map(is_test, names))]
    for folder, names in tree:
        if any(f"{folder}/".startswith(f"{it}/") for it in tests if it != package):
            continue
        holds_tests = any(it.startswith(f"{folder}/") for it in tests) and folder != package
        for name in names:
            is_module = name.endswith(".py") and not is_test(name)
            file = os.path.join(folder, name)
            if is_module and os.path.getsize(file) and not (holds_tests and name == "__init__.py"):
                yield file


def is_test(name: str) -> bool:
    return any(fnmatch(name, it) for it in ("test_*.py", "*_test.py", "conftest.py"))


def is_uncompiled_in_the_sources(file: str) -> bool:
    """Return whether a file is an extension module that the sources of its package lack."""
    package, _, rest = file.partition("/")
    is_in_sources = os.path.isfile(os.path.join(package, "__init__.py"))
    is_module = bool(rest) and file.endswith(tuple(EXTENSION_SUFFIXES))
    return not IS_SAFE and is_in_sources and is_module and not os.path.exists(file)


if __name__ == "__main__":
    main()
