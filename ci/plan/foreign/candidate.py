"""What one place of a project states about its tests, and how words of commands become that."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

TESTS = ("tests", "test", "testing", "pytest", "unit", "unittest", "unittests", "unit-tests")
# Names of places that often have the test packages among others.
OTHERS = ("dev", "develop", "development", "ci", "all")

LONGEST_REQUIREMENT = 1000  # characters

UNKNOWN = "\0"  # in a word: a part that only the runner of the tests knows
ROOT = "\1"  # in a word: the folder of the project
# The program measures and reports itself, and coverage below a limit is no failed test.
_LEFT_OUT = (
    *("--cov", "--no-cov-on-fail", "--junit", "--html", "--self-contained-html", "--basetemp"),
    *("--report-log", "--codspeed"),
)
_HAVE_VALUE = re.compile(
    r"--(cov|cov-report|cov-config|cov-fail-under|cov-context|junit-?xml|html|basetemp|report-log)"
)
_OPERATORS = re.compile(r"&&|\|\|?|;|&|>>?|<|2>&1")
_PYTESTS = ("pytest", "py.test")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Packages and command of a suite, as one place states them."""

    origin: str
    """File and key."""
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Requirements files."""
    constraints: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """The command of the tests, if one is stated."""
    folder: str = "."
    """Where the command runs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    """What cannot be taken over."""

    def __bool__(self) -> bool:
        return bool(self.extras or self.groups or self.requirements or self.files)

    def adding(self, words: Iterable[str]) -> Candidate:
        """Return this with arguments of ``pip install`` and its relatives."""
        found: dict[str, list[str]] = {key: [] for key in ("extras", "groups", "requirements")}
        found |= {key: [] for key in ("files", "constraints", "unknown")}
        options = {"-r": "files", "--requirement": "files", "-c": "constraints"}
        options |= {"--constraint": "constraints", "--group": "groups", "--extra": "extras"}
        waiting = None
        for word in words:
            option, _, value = word.partition("=")
            if waiting:
                found[waiting].append(word)
                waiting = None
            elif word in options:
                waiting = options[word]
            elif option in options and option.startswith("--"):
                found[options[option]].append(value)
            elif word[:2] in ("-r", "-c"):
                found[options[word[:2]]].append(word[2:].lstrip())
            elif own := re.fullmatch(r"(?:-e|--editable=)?\s*[.\1]/?(?:\[(?P<extras>.*)\])?", word):
                found["extras"] += (
                    it.strip() for it in (own["extras"] or "").split(",") if it.strip()
                )
            elif not word.startswith("-"):
                found["requirements" if is_requirement(word) else "unknown"].append(word)
        for key in ("files", "constraints"):
            found[key] = [word.replace(f"{ROOT}/", "").removeprefix("./") for word in found[key]]
        update = {key: (*getattr(self, key), *values) for key, values in found.items()}
        lists: Mapping[str, Any] = {key: tuple(dict.fromkeys(it)) for key, it in update.items()}
        return replace(self, **lists)


def is_requirement(text: str) -> bool:
    """Return whether ``text`` names a package, as pip reads it."""
    try:
        Requirement(text[: LONGEST_REQUIREMENT + 1])
    except (InvalidRequirement, RecursionError):
        return False
    return len(text) <= LONGEST_REQUIREMENT


def pytest_command(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command that runs pytest without what measures it; empty for any other command."""
    for place, word in enumerate(words):
        if _OPERATORS.fullmatch(word):
            return ()
        if PurePosixPath(word).name not in _PYTESTS:
            continue
        before = words[:place]
        if before and before[-1] not in ("-m", "run"):
            continue  # as in `pip install pytest`
        program = ["python", "-m", "pytest"] if before[-1:] == ["-m"] else ["pytest"]
        return (*program, *_kept(words[place + 1 :]))
    return ()


def _kept(words: Sequence[str]) -> list[str]:
    """Return the arguments of pytest without reports, and without more than one ``-q``."""
    kept: list[str] = []
    skips = False
    for word in words:
        if _OPERATORS.fullmatch(word):
            break
        is_value = skips and not word.startswith("-")
        skips = _HAVE_VALUE.fullmatch(word) is not None
        if is_value or word.startswith(_LEFT_OUT) or re.fullmatch("-q+|--quiet", word):
            continue
        if word:
            kept.append(word)
    return kept


def split_command(text: str) -> list[str]:
    """Return the words of a command line; none if it is malformed."""
    try:
        return shlex.split(text, comments=False)
    except ValueError:
        return []


def rank(name: str) -> int:
    """Return the place of a name among those that tests often have; the first fits best."""
    known = (*TESTS, *OTHERS)
    plain = re.sub(r"[._]", "-", name.lower())
    return known.index(plain) if plain in known else len(known) + (0 if "test" in plain else 1)
