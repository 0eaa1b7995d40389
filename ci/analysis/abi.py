"""The ABI of the compiled files of two wheels, as ``abidiff`` of libabigail compares it.

The wheels are a stranger's. Their files are copied under names of ours, and the program gets a
limited time and memory, and no setting of the user: it would download debug information.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from ci.facts.compiled_files import CompiledFile, copy_compiled
from ci.facts.exported_symbols import SymbolChanges, WheelPair, symbol_changes
from ci.gates.regression import Judgement
from ci.util.process import ProcessError, run
from ci.util.text import counted, join_names, shorten

MISSING = "abidiff of Debian's package abigail-tools is not installed"
TIMEOUT_S = 120.0  # of one file
WHEEL_TIMEOUT_S = 600.0  # of all files of a wheel
MOST_MEMORY = 8 << 30  # bytes of address space
LONGEST_REPORT = 1 << 20  # characters
# Bits of the exit code, of abidiff's manual. Others are errors.
ABI_CHANGE, INCOMPATIBLE_CHANGE = 4, 8
_SUMMARY = re.compile(r"^(Function|Variable)s?( symbols)? changes summary: (.*)", re.MULTILINE)
_CONTENT_HASH = re.compile(r"-[0-9a-f]{8,}$")  # which auditwheel appends to a library's name
_COUNT = re.compile(r"(\d+) (Removed|Changed|Added)")


class AbiVerdict(StrEnum):
    """What abidiff concludes, in the order of gravity."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"  # compatible or not: a person decides
    INCOMPATIBLE = "incompatible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class FileAbi:
    """What changed in a compiled file."""

    file: str
    """Its name in the later wheel; in the earlier one, if it is gone."""
    verdict: AbiVerdict
    changes: Mapping[str, int]
    """Numbers of what changed, such as ``function removed``, without zeros."""
    has_types: bool | None
    """Whether both files have debug information; otherwise only symbols are compared. ``None``:
    there is only one file."""
    report: str
    """abidiff's own report, or why there is none."""

    @property
    def needs_review(self) -> bool:
        """Whether programs may break, and abidiff cannot tell."""
        is_more = {*self.changes} <= {"function added", "variable added"}
        return self.verdict is AbiVerdict.CHANGED and self.has_types is not None and not is_more

    def __str__(self) -> str:
        counts = [counted_change(count, what) for what, count in self.changes.items()]
        if not counts and self.verdict is not AbiVerdict.UNCHANGED:
            counts = [self.report.partition("\n")[0]]
        return f"{self.file}: {self.verdict}{': ' if counts else ''}{', '.join(counts)}"


@dataclass(frozen=True, kw_only=True)
class WheelAbi:
    """What changed in the compiled files of a wheel."""

    name: str
    """That of the later wheel."""
    files: Sequence[FileAbi] = ()
    gap: str | None = None
    """Why nothing was compared."""

    def lines(self) -> Iterator[str]:
        """Yield a line for each file that changed, and what was not compared."""
        if self.gap:
            yield f"{self.name}: only symbols are compared: {self.gap}"
            return
        changed = [it for it in self.files if it.verdict is not AbiVerdict.UNCHANGED]
        yield from (f"{self.name}: ABI of {it}" for it in changed)
        if not changed:
            yield f"{self.name}: ABI unchanged in {counted(len(self.files), 'compiled file')}"
        if bare := [it.file for it in self.files if it.has_types is False]:
            without = "without debug information, abidiff compares symbols, but no types"
            yield f"{self.name}: {without}: {join_names(bare)}"


@dataclass(frozen=True, kw_only=True)
class WheelComparison:
    """What a later wheel offers to programs, compared with an earlier one."""

    name: str
    """That of the later wheel."""
    symbols: SymbolChanges | None
    """``None``: unknown, as one of them cannot be read."""
    abi: WheelAbi | None
    """``None``: one of them cannot be read, or both have no compiled files."""

    def gaps(self) -> Iterator[str]:
        """Yield what is unknown, so that the wheel cannot be judged."""
        if self.symbols is None:
            yield f"{self.name}: it or the earlier wheel cannot be read"
        for file in self.abi.files if self.abi else ():
            if file.verdict is AbiVerdict.UNKNOWN:
                yield f"{self.name}: ABI of {file}"

    @property
    def judgements(self) -> Set[Judgement]:
        verdicts = {it.verdict for it in self.abi.files} if self.abi else set()
        is_broken = self.symbols is not None and bool(self.symbols.removed)
        if is_broken or AbiVerdict.INCOMPATIBLE in verdicts:
            return {Judgement.REGRESSION}
        changed = [it for it in self.abi.files if it.needs_review] if self.abi else []
        return {Judgement.SUSPECTED} if changed else set()


def compare_wheels(pair: WheelPair) -> WheelComparison:
    return WheelComparison(name=pair.name, symbols=symbol_changes(pair), abi=compare_abi(pair))


def counted_change(count: int, what: str) -> str:
    """``2 functions removed``."""
    noun, _, how = what.partition(" ")
    return f"{counted(count, noun)} {how}"


def compare_abi(pair: WheelPair) -> WheelAbi | None:
    """Compare two wheels; ``None``: one cannot be read, or both have no compiled files."""
    with TemporaryDirectory(prefix="infini-ci-abi-") as name:
        folders = [Path(name, side) for side in ("before", "after")]
        for folder in folders:
            folder.mkdir()
        then, now = map(copy_compiled, (pair.before, pair.after), folders)
        if then is None or now is None or not (then or now):
            return None
        if shutil.which("abidiff") is None:
            return WheelAbi(name=pair.name, gap=MISSING)
        return WheelAbi(name=pair.name, files=[*_compare_files(then, now, Path(name))])


def _compare_files(
    then: Mapping[str, CompiledFile], now: Mapping[str, CompiledFile], folder: Path
) -> Iterator[FileAbi]:
    earlier, later = _by_library(then), _by_library(now)
    end = time.monotonic() + WHEEL_TIMEOUT_S
    for library in sorted({*earlier, *later}):
        pair = earlier.get(library), later.get(library)
        name = pair[1] or pair[0] or library
        if pair[0] and pair[1]:
            limit = min(TIMEOUT_S, max(end - time.monotonic(), 0.0))
            yield _compare_file(name, then[pair[0]], now[pair[1]], folder, limit)
        else:
            verdict = AbiVerdict.CHANGED if pair[1] else AbiVerdict.INCOMPATIBLE
            report = "the file is new" if pair[1] else "the file is gone"
            yield FileAbi(file=name, verdict=verdict, changes={}, has_types=None, report=report)


def _by_library(files: Mapping[str, CompiledFile]) -> Mapping[str, str]:
    """The names of files by those of their libraries.

    ``tiny/_core.abi3.so`` may have been ``tiny/_core.cpython-311.so``. Where a folder has several
    such files, their names count whole.
    """
    libraries = {it: _library(it) for it in files}
    numbers = Counter(libraries.values())
    return {library if numbers[library] == 1 else name: name for name, library in libraries.items()}


def _library(name: str) -> str:
    path = PurePosixPath(name)
    stem = _CONTENT_HASH.sub("", path.name.partition(".")[0])
    return str(path.with_name(stem or path.name))


def _compare_file(
    name: str, then: CompiledFile, now: CompiledFile, folder: Path, limit_s: float
) -> FileAbi:
    limit = ("prlimit", f"--as={MOST_MEMORY}") if shutil.which("prlimit") else ()
    command = (*limit, "abidiff", "--no-default-suppression", str(then.path), str(now.path))
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "LC_ALL": "C"}
    try:
        done = run(command, cwd=folder, environment=environment, timeout_s=limit_s, check=False)
    except ProcessError as error:
        report, verdict = f"abidiff has no result: {error}", AbiVerdict.UNKNOWN
    else:
        report, verdict = done.stdout, _verdict(done.exit_code)
        if verdict is AbiVerdict.UNKNOWN:
            report = f"abidiff ended with exit code {done.exit_code}\n{done.stderr}"
    return FileAbi(
        file=name,
        verdict=verdict,
        changes=_changes(report),
        has_types=then.has_types and now.has_types,
        report=shorten(report.replace(f"{folder}/", "").strip(), LONGEST_REPORT),
    )


def _verdict(exit_code: int) -> AbiVerdict:
    if exit_code < 0 or exit_code & ~(ABI_CHANGE | INCOMPATIBLE_CHANGE):
        return AbiVerdict.UNKNOWN
    if exit_code & INCOMPATIBLE_CHANGE:
        return AbiVerdict.INCOMPATIBLE
    return AbiVerdict.CHANGED if exit_code & ABI_CHANGE else AbiVerdict.UNCHANGED


def _changes(report: str) -> Mapping[str, int]:
    """The numbers in a report, those with debug information and those without together."""
    found: Counter[str] = Counter()
    for noun, _, counts in _SUMMARY.findall(report):
        for count, how in _COUNT.findall(counts):
            found[f"{noun} {how}".lower()] += int(count)
    return {what: count for what, count in found.items() if count}
