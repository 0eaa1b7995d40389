"""The packages that a project declares: extras, dependency groups, requirements files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packaging.dependency_groups import resolve_dependency_groups
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ci.plan.foreign.candidate import Candidate, is_requirement
from ci.plan.foreign.files import (
    BROKEN,
    ProjectFiles,
    called,
    constants,
    strings,
    table,
    words_of,
)

# Files of requirements for tests, the most specific first.
_STEMS = ("test", "tests", "testing", "pytest", "dev", "develop", "development")
REQUIREMENTS_FILES = (
    *(
        pattern.format(stem)
        for stem in _STEMS
        for pattern in (
            *("requirements-{}.txt", "requirements_{}.txt", "requirements/{}.txt"),
            *("requirements/requirements-{}.txt", "{}-requirements.txt", "{}_requirements.txt"),
            *("{}/requirements.txt", "requirements.{}.txt"),
        )
    ),
)
MOST_FILES = 50  # that name each other with `-r`


class Declared:
    """What a project declares; every text of it may be nonsense."""

    def __init__(self, files: ProjectFiles) -> None:
        self._files = files
        self._pyproject = files.toml("pyproject.toml")
        self._setup_cfg = files.ini("setup.cfg")
        self._setup_py = _setup_arguments(files.program("setup.py"))
        self.project = table(self._pyproject, "project")
        self.groups = table(self._pyproject, "dependency-groups")
        self.extras = self._extras()
        """Requirements of each extra, with its origin."""

    @property
    def name(self) -> str | None:
        """The name of the project."""
        poetry = table(self._pyproject, "tool", "poetry")
        names = [self.project.get("name"), poetry.get("name"), self._option("metadata", "name")]
        names += self._setup_py.get("name", [])
        return next((it for it in names if isinstance(it, str) and it), None)

    @property
    def requires_python(self) -> tuple[str, str] | None:
        """The versions of Python that the project supports, and where it states them."""
        places = {
            "pyproject.toml: project.requires-python": self.project.get("requires-python"),
            "setup.cfg: [options] python_requires": self._option("options", "python_requires"),
            "setup.py: python_requires": next(
                iter(self._setup_py.get("python_requires", [])), None
            ),
        }
        return next(((it, at) for at, it in places.items() if isinstance(it, str) and it), None)

    def candidates(self) -> Iterator[Candidate]:
        """Yield everything that may have the test packages."""
        for name, (_, origin) in self.extras.items():
            yield Candidate(origin=origin, extras=(name,))
        for name in self.groups:
            yield Candidate(origin=f"pyproject.toml: dependency-groups.{name}", groups=(name,))
        tool = table(self._pyproject, "tool")
        for name, words in table(tool, "pdm", "dev-dependencies").items():
            origin = f"pyproject.toml: tool.pdm.dev-dependencies.{name}"
            yield Candidate(origin=origin).adding(strings(words))
        for name in table(tool, "poetry", "group"):
            origin = f"pyproject.toml: tool.poetry.group.{name}"
            packages = table(tool, "poetry", "group", name, "dependencies")
            yield Candidate(origin=origin).adding(_poetry(packages))
        packages = table(tool, "poetry", "dev-dependencies")
        yield Candidate(origin="pyproject.toml: tool.poetry.dev-dependencies").adding(
            _poetry(packages)
        )
        yield Candidate(origin="pyproject.toml: tool.uv.dev-dependencies").adding(
            strings(table(tool, "uv").get("dev-dependencies", []))
        )
        old = _lines(self._option("options", "tests_require"))
        yield Candidate(origin="setup.cfg: [options] tests_require").adding(old)
        yield Candidate(origin="setup.py: tests_require").adding(
            self._setup_py.get("tests_require", [])
        )
        for file in REQUIREMENTS_FILES:
            if self._files.path(file):
                yield Candidate(origin=file, files=(file,))

    def packages(self, candidate: Candidate) -> set[str]:
        """Return the names of the packages that ``candidate`` installs, as far as is known."""
        found = set(_names(candidate.requirements))
        for name in candidate.extras:
            found |= self._extra_packages(name, set())
        try:
            found |= set(_names(resolve_dependency_groups(self.groups, *candidate.groups)))
        except (*BROKEN, LookupError, TypeError, ExceptionGroup):
            pass  # pip reports it
        seen: set[str] = set()
        for file in candidate.files:
            found |= self._file_packages(file, seen)
        return found

    def _extra_packages(self, name: str, seen: set[str]) -> set[str]:
        """Return the packages of an extra, and of the other extras that it names."""
        requirements, _ = self.extras.get(canonicalize_name(name), ((), ""))
        seen.add(canonicalize_name(name))
        found = set(_names(requirements))
        own = canonicalize_name(self.name or "")
        for text in filter(is_requirement, requirements):
            needed = Requirement(text)
            if canonicalize_name(needed.name) == own:
                for extra in map(canonicalize_name, needed.extras):
                    found |= self._extra_packages(extra, seen) if extra not in seen else set()
        return found

    def _file_packages(self, name: str, seen: set[str]) -> set[str]:
        if name in seen or len(seen) >= MOST_FILES:
            return set()
        seen.add(name)
        lines = [re.sub(r"(^|\s)#.*", "", it) for it in self._files.text(name).splitlines()]
        found = set(_names(re.split(r"\s--?\w", it)[0].rstrip("\\ ") for it in lines))
        for line in lines:
            if other := re.match(r"\s*(?:-r|--requirement)[\s=]*(\S+)", line):
                folder = name.rpartition("/")[0]
                path = f"{folder}/{other[1]}" if folder else other[1]
                found |= self._file_packages(path, seen)
        return found

    def _extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        found = {}
        optional = table(self._pyproject, "project", "optional-dependencies")
        for name, words in optional.items():
            found[name] = (strings(words), f"pyproject.toml: project.optional-dependencies.{name}")
        dynamic = table(self._pyproject, "tool", "setuptools", "dynamic", "optional-dependencies")
        for name, value in dynamic.items():
            files = strings(table(value).get("file", []))
            lines = [line for file in files for line in self._files.text(file).splitlines()]
            where = "tool.setuptools.dynamic.optional-dependencies"
            found[name] = (tuple(lines), f"pyproject.toml: {where}.{name}")
        for name in table(self._pyproject, "tool", "poetry", "extras"):
            words = strings(table(self._pyproject, "tool", "poetry", "extras")[name])
            found[name] = (words, f"pyproject.toml: tool.poetry.extras.{name}")
        section = "options.extras_require"
        if self._setup_cfg.has_section(section):
            for name, text in self._setup_cfg.items(section):
                found[name] = (tuple(_lines(text)), f"setup.cfg: [{section}] {name}")
        for key, words in self._setup_py.items():
            if key.startswith("extras_require."):
                found[key.partition(".")[2]] = (tuple(words), f"setup.py: {key}")
        return {canonicalize_name(name): it for name, it in found.items()}

    def _option(self, section: str, key: str) -> str | None:
        ini = self._setup_cfg
        return ini.get(section, key) if ini.has_option(section, key) else None


def _names(requirements: Iterable[object]) -> Iterator[str]:
    for text in requirements:
        if is_requirement(str(text)):
            yield canonicalize_name(Requirement(str(text)).name)


def _lines(text: str | None) -> list[str]:
    return [line.strip() for line in (text or "").split("\n") if line.strip()]


def _setup_arguments(tree: ast.Module) -> dict[str, list[str]]:
    """Return the literal arguments of ``setup()``; those of dictionaries as ``key.name``."""
    known, found = constants(tree), dict[str, list[str]]()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or called(node) not in ("setup", "setuptools.setup"):
            continue
        for keyword in node.keywords:
            value: ast.expr | None = keyword.value
            if isinstance(value, ast.Name):
                value = known.get(value.id)
            if keyword.arg and isinstance(value, ast.Dict):
                for key, item in zip(value.keys, value.values, strict=True):
                    for name in words_of(key, known):
                        found[f"{keyword.arg}.{name}"] = [*words_of(item, known)]
            elif keyword.arg:
                found[keyword.arg] = [*words_of(value, known)]
    return found


# Poetry has its own notation of versions.


def _poetry(packages: Mapping[str, Any]) -> Iterator[str]:
    for name, value in packages.items():
        settings = value if isinstance(value, Mapping) else {"version": value}
        if name == "python" or not isinstance(settings.get("version", "*"), str | list):
            continue
        extras = strings(settings.get("extras", []))
        bracket = f"[{','.join(extras)}]" if extras else ""
        version = settings.get("version", "*")
        marker = settings.get("markers")
        text = f"{name}{bracket}{_pep440(version) if isinstance(version, str) else ''}"
        full = f"{text}; {marker}" if isinstance(marker, str) else text
        yield next(filter(is_requirement, (full, f"{name}{bracket}")), name)


def _pep440(version: str) -> str:
    """Return a constraint of Poetry as pip reads it; none if that is not possible."""
    return (
        ",".join(filter(None, map(_constraint, version.split(",")))) if "|" not in version else ""
    )


def _constraint(text: str) -> str:
    text = text.strip()
    if found := re.fullmatch(r"([\^~])\s*(\d+(?:\.\d+)*)([\w.]*)", text):
        numbers = [int(it[:9]) for it in found[2].split(".")]
        if found[1] == "~":
            place = min(1, len(numbers) - 1)
        else:
            place = next((at for at, it in enumerate(numbers) if it), len(numbers) - 1)
        upper = [*numbers[:place], numbers[place] + 1]
        return f">={found[2]}{found[3]},<{'.'.join(map(str, upper))}"
    if text in ("*", ""):
        return ""
    return text if text[0] in "<>=!~" else f"=={text}"
