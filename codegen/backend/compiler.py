"""Asks a C++ compiler which kernels a source file defines.

A unit that includes the file defines all kernels once more. The compiler reports those that the
file has defined as redefinitions, with the place, whatever their spelling. It reports definitions
of another signature as errors, since the generated header declares the class.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from codegen.aten import Torch
from codegen.output import digest_of

_CANDIDATES = ("c++", "g++", "clang++")
_MARKER = "<kernel>"
_MOST_UNITS = 8  # side by side: each can take 800 MB with the headers of torch
_MESSAGE = re.compile(
    r"^(?P<path>[^\n]+?):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<kind>fatal error|error|note): (?P<text>.*)$",
    re.MULTILINE,
)
_DEPENDENCY = re.compile(r"(?<=\s)(?:\\[^\n]|[^\s\\])+(?<!:)(?=\s)")  # in a Makefile
_CXX20 = "__cplusplus < 202002L"  # in a header of the versions of torch that need C++20


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An error that the compiler reports."""

    path: str
    line: int
    column: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What the compiler found in a source file and the headers that it includes."""

    defined: Mapping[str, tuple[str, int]]  # path and line of each kernel, by its declaration
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Header:
    """The generated header, and the kernels that it declares."""

    name: str
    text: str
    namespace: str
    declarations: Sequence[str]  # of the kernels, with the class


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A command with its options, and what identifies it."""

    command: tuple[str, ...]
    version: str


def find_compiler(torch: Torch, folder: Path) -> Compiler | str:
    """The C++ compiler of CXX or PATH, for sources in ``folder``; or why there is none.

    CPPFLAGS and CXXFLAGS have further options, such as include folders.
    """
    chosen = os.environ.get("CXX")
    found = next(filter(None, map(shutil.which, _CANDIDATES)), "")
    program = [found] if chosen is None else shlex.split(chosen)
    if not any(program):
        return f"no {', '.join(_CANDIDATES)} in PATH" if chosen is None else "CXX is empty"
    try:
        version = subprocess.run(
            [*program, "--version"], check=True, capture_output=True, text=True, errors="replace"
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        return f"{shlex.join([*program, '--version'])} fails: {error}"
    folder = folder.resolve()
    include = torch.torch / "include"
    api = include / "torch" / "csrc" / "api" / "include"
    standard = "-std=c++17"
    with contextlib.suppress(OSError):
        if _CXX20 in (api / "torch" / "all.h").read_text(errors="replace"):
            standard = "-std=c++20"
    program.append(standard)
    if "clang" in version:
        program.append("-ferror-limit=0")
    flags = shlex.split(f"{os.environ.get('CPPFLAGS', '')} {os.environ.get('CXXFLAGS', '')}")
    places = [
        f"-I{folder if folder.is_dir() else folder.parent}",
        "-isystem",
        str(include),
        "-isystem",
        str(api),
    ]
    options = ["-w", "-fsyntax-only", *flags, *places]
    return Compiler(command=(*program, *options), version=version)


def compile_sources(
    compiler: Compiler, header: Header, sources: Iterable[Path], cache: dict[str, object]
) -> dict[Path, Compiled]:
    """Compile a unit for each source, side by side. ``cache`` has earlier results, by path."""

    def one(source: Path) -> Compiled:
        name = str(source.resolve())
        unit = _unit(name, header)
        key = digest_of(
            each.encode() for each in (*compiler.command, compiler.version, header.text, unit)
        )
        if (known := _recall(cache.get(name), key)) is not None:
            return known
        compiled, inputs = _compile(compiler, header, unit)
        cache[name] = {"key": key, "inputs": inputs, **asdict(compiled)}
        return compiled

    paths = list(sources)
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_UNITS)) as executor:
        return dict(zip(paths, executor.map(one, paths), strict=True))


def _unit(source: str, header: Header) -> str:
    lines = [f'#include "{source}"', f'#include "{header.name}"']
    lines.append(f"namespace {header.namespace} {{")
    for number, declaration in enumerate(header.declarations):
        lines += [f'#line {number + 1} "{_MARKER}"', f"{declaration} {{ __builtin_trap(); }}"]
    return "\n".join([*lines, "}", ""])


def _compile(
    compiler: Compiler, header: Header, unit: str
) -> tuple[Compiled, dict[str, list[int]]]:
    """Compile a unit; also return the state of each file that it includes."""
    with tempfile.TemporaryDirectory() as scratch:
        (folder := Path(scratch)).joinpath("unit.cc").write_text(unit)
        folder.joinpath(header.name).write_text(header.text)
        program, *options = compiler.command
        finished = subprocess.run(
            [program, f"-I{scratch}", *options, "-MD", "-MF", f"{scratch}/d", f"{scratch}/unit.cc"],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
        )
        compiled = _read_messages(finished.stderr, header)
        if finished.returncode not in (0, 1):
            text = f"{program} ends with exit code {finished.returncode}"
            crash = Problem(path=header.name, line=1, column=1, text=text)
            compiled = replace(compiled, problems=(*compiled.problems, crash))
        included = (folder / "d").read_text() if (folder / "d").is_file() else ""
        names = [name.replace("\\ ", " ") for name in _DEPENDENCY.findall(included)]
        inputs = {name: _state(name) for name in names if not name.startswith(scratch)}
    return compiled, inputs


def _read_messages(text: str, header: Header) -> Compiled:
    defined: dict[str, tuple[str, int]] = {}
    problems = []
    redefined = ""  # the declaration of the error before a note
    for match in _MESSAGE.finditer(text):
        path, line = match["path"], int(match["line"])
        if match["kind"] == "note":
            if redefined and "previous" in match["text"]:
                defined[redefined], redefined = (path, line), ""
            continue
        is_marker = path == _MARKER
        redefined = header.declarations[line - 1] if is_marker else ""
        if not is_marker or "redefinition" not in match["text"]:
            redefined = ""
            column = int(match["column"] or 1)
            problems.append(Problem(path=path, line=line, column=column, text=match["text"]))
    return Compiled(defined=defined, problems=tuple(problems))


def _state(path: str) -> list[int]:
    try:
        status = Path(path).stat()
    except OSError:
        return []
    return [status.st_mtime_ns, status.st_size]


def _recall(known: object, key: str) -> Compiled | None:
    """The earlier result, if it has no problems and its inputs are the same."""
    match known:
        case {"key": earlier, "inputs": dict(inputs), "defined": dict(defined), "problems": []}:
            if (
                inputs
                and earlier == key
                and all(_state(name) == state for name, state in inputs.items())
            ):
                places = {name: (str(place[0]), int(place[1])) for name, place in defined.items()}
                return Compiled(defined=places)
    return None


def read_cache(path: Path) -> dict[str, object]:
    """Read earlier results; a missing or damaged file has none."""
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}
