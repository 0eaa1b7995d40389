"""The lock of a run's packages: only what installers recorded, in a file that other tools read."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.pylock import Pylock

from ci.facts.package_lock import lock_changes, lock_text, package_lock
from ci.model.results import Distribution, PlatformResult
from ci.util.requirements import read_lock
from tests.ci.published import PUBLISHED, platform_result

SHA, OTHER = "a" * 64, "b" * 64
INDEX = "https://pypi.org/files"


def result(packages: dict[str, str], origins: Any = None, **changes: Any) -> PlatformResult:
    environment = {"packages": packages, "origins": origins or {}, "python": "3.11.7"}
    return platform_result("cpu", PUBLISHED[0][1:], environment=environment, **changes)


def origin(name: str, sha256: str = SHA, **changes: Any) -> dict[str, Any]:
    return {"url": f"{INDEX}/{name}", "sha256": sha256, "direct": False, **changes}


def lock(*args: Any, **changes: Any) -> Pylock:
    made = package_lock(result(*args, **changes))
    assert made is not None
    assert read_lock(lock_text(made)) == made
    return made


@pytest.mark.parametrize(
    ("version", "recorded", "source"),
    [
        ("1.0", origin("a_b-1.0-py3-none-any.whl"), "wheels"),
        ("1.0+cpu", origin("a_b-1.0%2Bcpu-py3-none-any.whl"), "wheels"),
        ("1.0", origin("a_b-1.0.tar.gz"), "sdist"),
        ("1.0", origin("main.zip", direct=True), "archive"),
        ("1.0", {"url": "https://git.example/a", "vcs": "git", "commit": "c" * 40}, "vcs"),
    ],
)
def test_what_an_installer_recorded(version: str, recorded: dict[str, Any], source: str) -> None:
    [package] = lock({"A.b": version}, {"a-b": recorded}).packages
    assert (package.name, str(package.version)) == ("a-b", version)
    assert [it for it in ("wheels", "sdist", "archive", "vcs") if getattr(package, it)] == [source]


@pytest.mark.parametrize(
    "recorded",
    [
        {},
        {"url": f"{INDEX}/a_b-1.0-py3-none-any.whl"},
        origin("a_b-2.0-py3-none-any.whl"),
        origin("other-1.0-py3-none-any.whl"),
        origin("a_b.exe"),
        origin("a_b-1.0-py3-none-any.whl", sha256=3),  # type: ignore[arg-type]
        {"url": 7, "vcs": 8, "commit": None},
        {"url": f"{INDEX}/a", "vcs": "git"},
        origin("a_b-1.0-py3-none-any.whl", sha256=[]),  # type: ignore[arg-type]
        {"url": "https://[x/a_b-1.0-py3-none-any.whl", "sha256": SHA},
    ],
)
def test_nothing_is_made_up(recorded: dict[str, Any]) -> None:
    found = lock({"A.b": "1.0"}, {"a-b": recorded})
    assert (found.packages, found.tool) == (
        [],
        {"infini-ci": {"python": "3.11.7", "unlocked": {"a-b": "1.0"}}},
    )


@pytest.mark.parametrize(
    ("python", "required"),
    [
        ("3.12.1", "==3.12.*"),
        ("3.12.1+", "==3.12.*"),
        ("3.12", None),
        ("३.१२.१", None),
        (f"3.{'9' * 5000}.1", None),
        ([], None),
    ],
)
def test_the_recorded_python(python: Any, required: str | None) -> None:
    environment = {"packages": {"six": "1.0"}, "python": python}
    made = package_lock(platform_result("cpu", PUBLISHED[0][1:], environment=environment))
    assert made is not None
    found = made.requires_python
    assert (str(found) if found else None) == required


def test_the_project_is_not_in_the_lock() -> None:
    wheel = Distribution(name="tiny-1-py3-none-any.whl", sha256=SHA, size_bytes=1, path=None)
    origins = {"tiny": origin("tiny-1-py3-none-any.whl", direct=True)}
    found = lock({"tiny": "1"}, origins, distributions=(wheel,))
    assert (found.packages, found.tool and found.tool["infini-ci"]["unlocked"]) == ([], {})


def test_without_packages_there_is_no_lock() -> None:
    assert package_lock(result({})) is None


WHEEL = "six-1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("packages", "sha256", "expected"),
    [
        ({"six": "1.0"}, SHA, []),
        ({"six": "1.0", "more": "1"}, SHA, []),
        ({"six": "1.1"}, SHA, ["six: 1.0 -> 1.1"]),
        ({"more": "1"}, SHA, ["six: 1.0 -> not installed"]),
        ({"six": "01.00"}, SHA, []),
        ({"six": "odd"}, SHA, ["six: 1.0 -> odd"]),
        ({"six": "9" * 5000}, SHA, [f"six: 1.0 -> {'9' * 5000}"]),
        ({"six": "1.0"}, [SHA], []),
        ({"six": "1.0"}, OTHER, [f"six: a file of the lock -> SHA-256 {OTHER}"]),
    ],
)
def test_a_lock_that_a_run_did_not_follow(
    packages: dict[str, str], sha256: Any, expected: list[str]
) -> None:
    wanted = lock({"six": "1.0"}, {"six": origin(WHEEL)})
    found = lock_changes(wanted, result(packages, {"six": origin(WHEEL, sha256)}))
    assert [f"{it.component}: {it.before} -> {it.after}" for it in found] == expected
