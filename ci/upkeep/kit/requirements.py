"""What the stages of a plan install, as far as files say it: nothing of the sources is run."""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from packaging.requirements import InvalidRequirement, Requirement

from ci.model.plan import RunPlan
from ci.upkeep.bundle.wheels import pip_arguments

PROJECT = "pyproject.toml"
BUILD_TOOLS = ("setuptools", "wheel")  # what pip takes where the sources name none
# `.`, `./part` or `.[extra,other]`
_LOCAL = re.compile(r"(?P<folder>\.[\w./-]*)(\[(?P<extras>[^\]]*)\])?")
# The vendor's own, where the environment sees them.
_OF_A_VENDOR = re.compile(r"(torch|triton)\b", re.IGNORECASE)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _pip_install() -> _Parser:
    """Return a parser for the options of ``pip install`` that have a value, and those read here."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("words", nargs="*")
    parser.add_argument("-r", "--requirement", action="append", default=[])
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--no-build-isolation", action="store_true")
    parser.add_argument("-e", "--editable", action="append", default=[])
    parser.add_argument("-c", "--constraint", "-C", "--config-settings", "-f", "--find-links")
    parser.add_argument("-i", "--index-url", "--extra-index-url", "-t", "--target")
    return parser


def stage_requirements(plan: RunPlan) -> list[str]:
    """Return what the stages of ``plan`` install besides the sources, as words for pip.

    Left out is torch, if the environment sees its vendor's. Dependencies that a build backend finds
    are unknown.
    """
    found: dict[str, None] = {}
    for stage in plan.stages:
        if (arguments := pip_arguments(stage)) is not None:
            found |= dict.fromkeys(_installed(plan.source, arguments))
    return [it for it in found if not (plan.host.sees_torch and _OF_A_VENDOR.match(it))]


def _installed(source: Path, arguments: list[str]) -> Iterator[str]:
    try:
        options, _ = _pip_install().parse_known_intermixed_args(arguments)
    except ValueError:
        return
    for name in options.requirement:
        yield from ("--requirement", str(source / name))
    for name in options.group:
        path, _, group = name.rpartition(":")
        yield from _group(_read(source / (path or PROJECT)), group)
    for word in (*options.words, *options.editable):
        if local := _LOCAL.fullmatch(word):
            document = _read(source / local["folder"] / PROJECT)
            yield from _of_project(document, (local["extras"] or "").split(","))
            if not options.no_build_isolation:
                yield from _texts(document.get("build-system", {}).get("requires", BUILD_TOOLS))
        elif _is_requirement(word):
            yield word


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # pip reports it in the stage
        return {}


def _of_project(document: Mapping[str, Any], extras: Iterable[str]) -> Iterator[str]:
    project = document.get("project", {})
    yield from _texts(project.get("dependencies", ()))
    for extra in extras:
        yield from _texts(project.get("optional-dependencies", {}).get(extra.strip(), ()))


def _group(document: Mapping[str, Any], name: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    entries = document.get("dependency-groups", {}).get(name, ())
    yield from _texts(entries)
    for entry in entries:
        included = entry.get("include-group") if isinstance(entry, dict) else None
        if included and included not in (*above, name):
            yield from _group(document, included, (*above, name))


def _texts(entries: Iterable[object]) -> Iterator[str]:
    return (entry for entry in entries if isinstance(entry, str))


def _is_requirement(word: str) -> bool:
    try:
        Requirement(word)
    except InvalidRequirement:
        return False
    return True
