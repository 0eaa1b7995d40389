"""The ``ci.yaml`` that follows from what a stranger's project declares, and why."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from ci.errors import UsageError
from ci.model.plan import RESERVED_VARIABLES
from ci.model.platforms import PLATFORMS
from ci.plan.config import TEST_COMMAND, WHAT_TO_INSTALL, short_stages
from ci.plan.foreign.benchmarks import Benchmarks, find_benchmarks
from ci.plan.foreign.candidate import (
    OTHERS,
    ROOT,
    TESTS,
    UNKNOWN,
    Candidate,
    is_requirement,
    rank,
    split_command,
)
from ci.plan.foreign.declared import Declared
from ci.plan.foreign.files import ProjectFiles, strings, table
from ci.plan.foreign.runners import runners
from ci.util.files import walk
from ci.util.text import strip_controls

PLATFORM = "cpu"
PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
GROUP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
PYTHONS = tuple(f"3.{minor}" for minor in range(8, 16))
NEWEST_PATCH = 99
TESTS_DEPTH = 3  # levels below the folder
# Plugins of pytest by the options and the settings that only they have: pytest refuses unknown
# options, and with --strict-config unknown settings.
OPTIONS: Mapping[str, str] = {
    "--cov": "pytest-cov",
    "--no-cov": "pytest-cov",
    "-n": "pytest-xdist",
    "--numprocesses": "pytest-xdist",
    "--dist": "pytest-xdist",
    "--maxprocesses": "pytest-xdist",
    "--timeout": "pytest-timeout",
    "--asyncio-mode": "pytest-asyncio",
    "--benchmark": "pytest-benchmark",
    "--reruns": "pytest-rerunfailures",
    "--randomly": "pytest-randomly",
    "--doctest-plus": "pytest-doctestplus",
    "--doctest-glob-plus": "pytest-doctestplus",
    "--mypy": "pytest-mypy",
    "--ruff": "pytest-ruff",
    "--snapshot": "syrupy",
    "--xdoctest": "xdoctest",
    "--allow-hosts": "pytest-socket",
    "--disable-socket": "pytest-socket",
    "--hypothesis": "hypothesis",
}
SETTINGS: Mapping[str, str] = {
    "asyncio_mode": "pytest-asyncio",
    "asyncio_default_fixture_loop_scope": "pytest-asyncio",
    "timeout": "pytest-timeout",
    "timeout_method": "pytest-timeout",
    "trio_mode": "pytest-trio",
    "anyio_mode": "anyio",
    "DJANGO_SETTINGS_MODULE": "pytest-django",
}
# Options whose value is a path: both are left out if the path is not known.
PATH_OPTIONS = ("-c", "--rootdir", "--ignore", "--ignore-glob", "--confcutdir", "--deselect")
FLAGS = re.compile(r"-[vsxl]+|--[\w-]+=.*|--(verbose|doctest-modules|strict-markers|strict-config)")
COMPILING_BACKENDS = ("mesonpy", "scikit_build_core", "maturin", "setuptools_rust", "sipbuild")

_STYLE: Mapping[str, Any] = {"width": 100, "allow_unicode": True}


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A configuration for the platform ``cpu``, with what it was taken from."""

    settings: Mapping[str, object]
    origins: Mapping[str, str]
    """Why a key has its value."""
    notes: tuple[str, ...]
    benchmarks: Benchmarks | None = None

    @property
    def text(self) -> str:
        """The content of ``ci.yaml``."""
        parts = ["# Written by the command `init`; the command `schema` prints all keys.\n"]
        for key, value in self.settings.items():
            if key in self.origins:
                parts.append(f"# {self.origins[key]}\n")
            listed = isinstance(value, list)
            text = yaml.safe_dump(
                value if listed else {key: value}, **_STYLE, default_flow_style=listed
            )
            parts.append(f"{key}: {text}" if listed else text)
        return "".join([*parts, self._benchmark_stages])

    @property
    def _benchmark_stages(self) -> str:
        """The stages with one for benchmarks, as a comment: these may take long."""
        if self.benchmarks is None:
            return ""
        found, taken = self.benchmarks, self.settings
        install = " ".join([str(taken.get("install", WHAT_TO_INSTALL)), *found.requirements])
        groups, test = strings(taken.get("groups", [])), str(taken.get("test", TEST_COMMAND))
        stages = [
            it.model_dump(mode="json", exclude_unset=True)
            for it in short_stages(install, groups, test)
        ]
        bench = {"name": "bench", "kind": "benchmark", "command": found.command}
        stages.append({**bench, "benchmarks": found.results})
        text = yaml.safe_dump({"stages": stages}, **_STYLE, sort_keys=False)
        replaced = [f"`{it}`" for it in ("install", "groups", "test") if it in taken]
        instead = f" in place of {', '.join(replaced)}" if replaced else ""
        heading = f"Benchmarks ({_one_line(found.origin)}). To measure them, use{instead}:"
        return "".join(f"# {line}\n" for line in (heading, *text.splitlines()))

    def lines(self) -> Iterator[str]:
        """Yield each key with its value and the reason."""
        for key, value in self.settings.items():
            parts = value.get(PLATFORM, {}) if isinstance(value, dict) else {key: value}
            why = f"  ({self.origins[key]})" if key in self.origins else ""
            for name, part in parts.items():
                words = part if isinstance(part, list | dict) else [part]
                yield f"{name}: {', '.join(map(str, words))}{why}"


def propose(folder: Path) -> Proposal:
    """Read the files of a project and propose a configuration; nothing of it is executed.

    Raises:
        UsageError: The folder has no project that pip can install.
    """
    files = ProjectFiles(folder)
    if not any(map(files.path, PROJECT_FILES)):
        what = f"got no project, expected {', '.join(PROJECT_FILES[:-1])} or {PROJECT_FILES[-1]}"
        detail = f"\n{files.notes[0]}" if files.notes else ""
        raise UsageError(
            f"{folder}: {what}{detail}", remedy="Name the folder of a project that pip installs."
        )
    return _Author(files).proposal()


class _Author:
    """Decides on a proposal, and keeps the reasons."""

    def __init__(self, files: ProjectFiles) -> None:
        self._files = files
        self._declared = Declared(files)
        self._runners = [*runners(files)]
        self._origins: dict[str, str] = {}
        self._notes: list[str] = []

    def proposal(self) -> Proposal:
        settings: dict[str, object] = {"project": self._project()}
        test = self._test()
        install, groups = self._packages(test)
        if install != WHAT_TO_INSTALL:
            settings["install"] = install
        if groups:
            settings["groups"] = [*groups]
        command = shlex.join(test)
        if command != TEST_COMMAND:
            settings["test"] = command
        settings["platforms"] = {PLATFORM: self._platform()}
        if not self._has_tests():
            self._notes.append(
                "no test_*.py and no folder of tests was found: an sdist often has none;"
                " a checkout has"
            )
        benchmarks = self._benchmarks()
        return Proposal(
            settings=settings,
            origins={key: _one_line(it) for key, it in self._origins.items() if key in settings},
            notes=tuple(map(_one_line, (*self._files.notes, *self._notes))),
            benchmarks=benchmarks,
        )

    def _benchmarks(self) -> Benchmarks | None:
        declared = map(self._declared.packages, self._declared.candidates())
        found = find_benchmarks(self._files, set().union(*declared))
        if found:
            what = "ci.yaml has a stage for them, as a comment"
            self._notes.append(f"benchmarks: {found.origin}: {what}")
        return found

    def _project(self) -> str:
        name = self._declared.name or re.sub(r"-\d[\w.]*$", "", self._files.folder.name)
        plain = re.sub(r"[^a-z0-9_.-]+", "-", name.lower())[:64]
        return re.sub("^[^a-z]+", "", plain).rstrip("-._") or "project"

    # Packages

    def _packages(self, test: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        chosen = self._checked(self._choice())
        plugins = [*self._plugins(test, self._declared.packages(chosen))]
        if plugins:
            self._notes += [f"added {name}: {why}" for name, why in plugins]
        own = f".[{','.join(chosen.extras)}]" if chosen.extras else "."
        words = [own, *(f"-r {shlex.quote(name)}" for name in chosen.files)]
        words += (f"-c {shlex.quote(name)}" for name in chosen.constraints)
        words += map(shlex.quote, (*chosen.requirements, *dict(plugins)))
        if chosen:
            key = "install" if len(words) > 1 or chosen.extras else "groups"
            self._origins[key] = chosen.origin
        elif plugins:
            self._origins["install"] = plugins[0][1]
        else:
            self._notes.append(
                "no extra, dependency group, requirements file or runner names pytest: the tests"
                " get pytest alone"
            )
        return " ".join(words), chosen.groups

    def _choice(self) -> Candidate:
        """Return what a runner installs, if that has pytest, else what is declared for tests."""
        declared = [it for it in self._declared.candidates() if it]
        with_pytest = [it for it in declared if self._has_pytest(it)]
        for_tests = [it for it in declared if _rank(it) < len(TESTS)]
        candidates = [
            *filter(self._has_pytest, self._runners),
            *sorted((it for it in with_pytest if _rank(it) < len((*TESTS, *OTHERS))), key=_rank),
            *sorted(for_tests, key=_rank),
            *with_pytest,
            *filter(None, self._runners),
        ]
        return next(iter(candidates), Candidate(origin=""))

    def _has_pytest(self, candidate: Candidate) -> bool:
        return "pytest" in self._declared.packages(candidate)

    def _checked(self, chosen: Candidate) -> Candidate:
        """Return a candidate without what the project does not have; notes name that."""
        known, dynamic = self._declared.extras, strings(self._declared.project.get("dynamic", []))
        is_open = "optional-dependencies" in dynamic or not self._declared.project
        lost = [
            *(f"extra {it}" for it in chosen.extras if it not in known and not is_open),
            *(f"dependency group {it}" for it in chosen.groups if not self._has_group(it)),
            *(it for it in (*chosen.files, *chosen.constraints) if not self._files.path(it)),
            *(it.replace(UNKNOWN, "{...}").replace(ROOT, ".") for it in chosen.unknown),
        ]
        if lost:
            self._notes.append(f"{chosen.origin}: left out: {', '.join(lost)}")
        return replace(
            chosen,
            extras=tuple(it for it in chosen.extras if f"extra {it}" not in lost and _is_name(it)),
            groups=tuple(filter(self._has_group, chosen.groups)),
            files=tuple(filter(self._files.path, chosen.files)),
            constraints=tuple(filter(self._files.path, chosen.constraints)),
        )

    def _has_group(self, name: str) -> bool:
        known = map(canonicalize_name, self._declared.groups)
        return canonicalize_name(name) in known and _is_name(name)

    def _plugins(self, test: Sequence[str], packages: set[str]) -> Iterator[tuple[str, str]]:
        """Yield the plugins that pytest refuses to start without, and who needs them."""
        origin, settings = self._pytest_settings()
        given = settings.get("addopts", "")
        words = split_command(given) if isinstance(given, str) else [*strings(given)]
        asked: dict[str, str] = {}
        for origin_of, word in (
            *((f"{origin}: addopts", it) for it in words),
            *(("test", it) for it in test),
        ):
            option = word.partition("=")[0]
            for known, plugin in OPTIONS.items():
                if option == known or (len(known) > 2 and option.startswith(f"{known}-")):
                    asked.setdefault(plugin, f"{origin_of} has {option}")
            if re.fullmatch(r"-n\d+|-nauto|-nlogical", word):
                asked.setdefault("pytest-xdist", f"{origin_of} has {word}")
        for key in settings.keys() & SETTINGS.keys():
            asked.setdefault(SETTINGS[key], f"{origin} sets {key}")
        required = settings.get("required_plugins", "")
        for text in required.split() if isinstance(required, str) else strings(required):
            if is_requirement(text):
                asked.setdefault(text, f"{origin}: required_plugins")
        for name, why in sorted(asked.items()):
            if re.split(r"[^\w-]", name)[0].lower() not in packages:
                yield name, why

    def _pytest_settings(self) -> tuple[str, Mapping[str, object]]:
        """Return the settings of pytest from the file that it would read itself."""
        for name in ("pytest.toml", ".pytest.toml"):
            if settings := table(self._files.toml(name), "pytest"):
                return name, settings
        for name in ("pytest.ini", ".pytest.ini"):
            if (ini := self._files.ini(name)).has_section("pytest"):
                return name, dict(ini.items("pytest"))
        pytest = table(self._files.toml("pyproject.toml"), "tool", "pytest")
        if settings := table(pytest, "ini_options") or pytest:
            return "pyproject.toml, tool.pytest", settings
        for name, section in (("tox.ini", "pytest"), ("setup.cfg", "tool:pytest")):
            if (ini := self._files.ini(name)).has_section(section):
                return name, dict(ini.items(section))
        return "", {}

    # The command of the tests

    def _test(self) -> tuple[str, ...]:
        for runner in self._runners:
            if runner.command:
                self._origins["test"] = runner.origin
                command = self._command(runner)
                if command[0] == "python" and self._is_compiled_in_root():
                    self._notes.append(
                        "`python -m pytest` tests the sources, which lack the compiled modules,"
                        " unless they are in another folder; `pytest --import-mode=importlib` tests"
                        " what was installed"
                    )
                return command
        if self._is_compiled_in_root():
            self._origins["test"] = (
                "not `python -m pytest`: it would test the sources, which lack the compiled modules"
            )
            return ("pytest",)
        return tuple(TEST_COMMAND.split())

    def _command(self, runner: Candidate) -> tuple[str, ...]:
        place = runner.command.index("pytest") + 1
        kept = [*runner.command[:place]]
        lost = []
        folder = runner.folder.replace(f"{ROOT}/", "").replace(ROOT, ".")
        elsewhere = folder not in (".", "") and UNKNOWN not in folder
        has_path = False
        for word in runner.command[place:]:
            plain = word.replace(f"{ROOT}/", "").replace(ROOT, ".").removeprefix("./") or "."
            before = kept[-1] if len(kept) > place else ""
            if UNKNOWN in word:
                lost.append(plain.replace(UNKNOWN, "{...}"))
                if before in PATH_OPTIONS:
                    kept.pop()
                continue
            in_folder = plain if ROOT in word or not elsewhere else f"{folder}/{plain}"
            exists = not word.startswith("-") and self._exists(in_folder)
            is_path = not word.startswith("-") and (
                exists or not before.startswith("-") or FLAGS.fullmatch(before) is not None
            )
            if is_path and not exists:
                lost.append(in_folder)
                continue
            has_path = has_path or (is_path and exists)
            kept.append(in_folder if is_path else plain)
        if elsewhere and not has_path and self._exists(folder):
            kept.append(folder)
        if lost:
            self._notes.append(f"{runner.origin}: left out of the command: {', '.join(lost)}")
        return tuple(kept)

    def _exists(self, name: str) -> bool:
        try:
            path = (self._files.folder / name.partition("::")[0]).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            return False
        return path.is_relative_to(self._files.folder)

    def _is_compiled_in_root(self) -> bool:
        build = table(self._files.toml("pyproject.toml"), "build-system")
        backend = build.get("build-backend", "")
        setup = self._files.text("setup.py")
        setuptools = table(self._files.toml("pyproject.toml"), "tool", "setuptools")
        compiles = (
            (isinstance(backend, str) and backend.startswith(COMPILING_BACKENDS))
            or any(word in setup for word in ("ext_modules", "Extension(", "RustExtension"))
            or "ext-modules" in setuptools
        )
        return compiles and not (self._files.folder / "src").is_dir()

    def _has_tests(self) -> bool:
        for _, folders, names in walk(self._files.folder, TESTS_DEPTH):
            if any(
                re.match(r"tests?\b|test_.*\.py$|.*_test\.py$", it) for it in (*folders, *names)
            ):
                return True
        return False

    # The platform

    def _platform(self) -> dict[str, object]:
        """Return the settings of the platform."""
        base_image, environment = self._base_image(), self._environment()
        return {
            **({"base_image": base_image} if base_image else {}),
            **({"environment": environment} if environment else {}),
        }

    def _environment(self) -> dict[str, str]:
        """Return the variables of the runner; those of coverage and of its own are for others."""
        runner = next((it for it in self._runners if it.command), Candidate(origin=""))
        taken, lost = {}, []
        for name, value in runner.environment.items():
            if name.startswith(("COVERAGE_", "COV_CORE_", "TOX_", "UV_", "VIRTUALENV_")):
                continue
            is_plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and value.isprintable()
            if is_plain and name not in RESERVED_VARIABLES:
                taken[name] = value
            else:
                lost.append(name)
        if lost:
            self._notes.append(f"{runner.origin}: left out the variables {', '.join(lost)}")
        if taken:
            self._origins["platforms"] = runner.origin
        return taken

    def _base_image(self) -> str | None:
        """Return another base image if the Python of the usual one does not fit."""
        image = PLATFORMS[PLATFORM].base_image or ""
        stated, found = self._declared.requires_python, re.search(r"python:(\d+\.\d+)", image)
        if stated is None or found is None:
            return None
        try:
            wanted = SpecifierSet(stated[0])
        except InvalidSpecifier:
            self._notes.append(f"{stated[1]}: ignored, as it is not valid: {stated[0]:.100}")
            return None
        fitting = [it for it in PYTHONS if wanted.contains(f"{it}.{NEWEST_PATCH}")]
        if found[1] in fitting or not fitting:
            return None
        self._origins["platforms"] = f"{stated[1]}: {stated[0]}"
        self._notes.append(
            f"the image has Python {fitting[0]}, as {stated[1]} is {stated[0]}; with --engine host,"
            " name such a Python with --python"
        )
        return image.replace(found[0], f"python:{fitting[0]}")


def _rank(candidate: Candidate) -> int:
    """Return how well the place of a candidate fits tests by its name; 0 fits best."""
    words = re.findall(r"[a-z]+", candidate.origin.rpartition(": ")[2].lower())
    return min(map(rank, [*words, *candidate.extras, *candidate.groups]), default=len(TESTS))


def _is_name(text: str) -> bool:
    return GROUP_NAME.fullmatch(text) is not None


def _one_line(text: str) -> str:
    return strip_controls(" ".join(text.split()))
