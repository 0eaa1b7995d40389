"""The lock of a run's packages, as ``pylock.toml`` (PEP 751): what was installed, and from where.

A lock names files by their hashes. An installer records them for what it installs. Of all other
packages, such as a vendor's own, the lock has only names and versions: it makes up nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

import tomlkit
from packaging.pylock import Package, Pylock, PylockValidationError
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from ci.facts.environment_key import ComponentChange
from ci.model.results import PlatformResult

PACKAGE_LOCK = "pylock.toml"
PROGRAM = "infini-ci"  # also the name of its table below `tool`
UNLOCKED = "unlocked"  # in that table: packages of which no installer recorded the file
MISSING = "not installed"
_RELEASE = re.compile(r"([1-9]\.[0-9]{1,3})\.[0-9]")


def package_lock(result: PlatformResult) -> Pylock | None:
    """Return the lock of the packages that a platform had; ``None``: they are not recorded.

    A tested wheel is not in it: the results have that file. So the environment of another run can
    be made of it. What was installed from a folder, as a project may be, is unlocked.
    """
    facts = result.environment
    versions = {str(name): str(it) for name, it in result.facts("packages").items()}
    if not versions:
        return None
    tested = {it.sha256 for it in result.distributions}
    locked, unlocked = [], {}
    for name, version in sorted(versions.items(), key=lambda it: canonicalize_name(it[0])):
        origin = _origin(result, name)
        if origin.get("sha256") in tested:
            continue
        package = _package(name, version, origin)
        if package is None:
            unlocked[canonicalize_name(name)] = version
        else:
            locked.append(package)
    python = _RELEASE.match(str(facts.get("python")))
    document = {
        "lock-version": "1.0",
        "created-by": PROGRAM,
        **({"requires-python": f"=={python[1]}.*"} if python else {}),
        "packages": locked,
        "tool": {PROGRAM: {"python": str(facts.get("python")), UNLOCKED: unlocked}},
    }
    return Pylock.from_dict(document)


def _origin(result: PlatformResult, name: str) -> Mapping[str, str | bool]:
    """Return what is recorded of a package: the code under test may have written it."""
    recorded = result.facts("origins", canonicalize_name(name))
    return {key: value for key, value in recorded.items() if isinstance(value, (str, bool))}


def _package(name: str, version: str, origin: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the entry of a package; ``None`` if no valid one can be made of its origin."""
    try:
        entry = {"name": canonicalize_name(name), "version": version, **_source(origin)}
        Pylock.from_dict({"lock-version": "1.0", "created-by": PROGRAM, "packages": [entry]})
    except (PylockValidationError, ValueError):  # also of an address that cannot be parsed
        return None
    return entry


def _source(origin: Mapping[str, object]) -> Mapping[str, object]:
    url, subdirectory = str(origin.get("url", "")), origin.get("subdirectory")
    below = {"subdirectory": subdirectory} if subdirectory else {}
    if "vcs" in origin:
        commit = origin.get("commit")
        return {"vcs": {"type": origin["vcs"], "url": url, "commit-id": commit, **below}}
    if "sha256" not in origin:
        return {}
    file = {"url": url, "hashes": {"sha256": origin["sha256"]}}
    if origin.get("direct"):
        return {"archive": {**file, **below}}
    name = unquote(urlsplit(url).path.rpartition("/")[2])
    named = {"name": name, **file}
    return {"wheels": [named]} if name.endswith(".whl") else {"sdist": named}


def lock_text(lock: Pylock) -> str:
    """Return the content of the file."""
    return tomlkit.dumps(lock.to_dict())


def lock_changes(lock: Pylock, result: PlatformResult) -> Iterator[ComponentChange]:
    """Yield in what the packages of a platform differ from the lock that they were made of.

    A lock may have several entries of one name, and entries with markers, for other machines.
    """
    facts = result.facts("packages")
    installed = {canonicalize_name(str(name)): str(version) for name, version in facts.items()}
    entries: dict[NormalizedName, list[Package]] = defaultdict(list)
    for package in lock.packages:
        entries[package.name].append(package)
    for name, packages in entries.items():
        version = installed.get(name, MISSING)
        known = [it.version for it in packages if it.version is not None]
        if version == MISSING and all(it.marker for it in packages):
            continue
        if version == MISSING or (known and _version(version) not in known):
            yield ComponentChange(name, ", ".join(map(str, known)) or "any version", version)
            continue
        digest = _origin(result, name).get("sha256")
        hashes = {it for package in packages for it in _hashes(package)}
        if digest and hashes and digest not in hashes:
            yield ComponentChange(name, "a file of the lock", f"SHA-256 {digest}")


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except ValueError:  # also of a number with thousands of digits
        return None


def _hashes(package: Package) -> Iterator[str]:
    for file in (*(package.wheels or ()), package.sdist, package.archive):
        if file is not None and "sha256" in file.hashes:
            yield file.hashes["sha256"]
