"""Read the result files of benchmark stages: each format is recognized by its content.

The code under test wrote the files. What does not fit is reported as a fault and never read in
part, since a benchmark that silently vanishes looks like one that was removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from math import prod
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pydantic import ValidationError

from ci.facts.files import LARGEST_FILE, ArchiveMember, read_archive, read_text_file
from ci.model.fields import MOST_BENCHMARKS
from ci.model.results import BenchmarkResult, Direction
from ci.protocol.agent_files import benchmark_file
from ci.util.lines import parse
from ci.util.text import counted, make_inert, make_json_storable, shorten

LARGEST_BENCHMARKS = 1 << 20  # bytes of JSON: 5,000 with names of 100 characters
FORMATS = "pytest-benchmark, Google Benchmark, asv, hyperfine, bench.json or the minimal form"

Object = Mapping[str, Any]


class Figure(NamedTuple):
    """A benchmark as a tool reported it; without a value it failed in the tool."""

    name: str
    value: Any
    unit: Any = "s"
    direction: Any = Direction.LOWER
    repetitions: Any = None


@dataclass(frozen=True, kw_only=True)
class BenchmarkReading:
    """What the result files of one stage have."""

    results: tuple[BenchmarkResult, ...] = ()
    fault: str | None = None
    """Why the files cannot be read; then there are no results."""
    without_value: tuple[str, ...] = ()
    """The benchmarks that failed in their tool."""


def read_benchmarks(
    folder: Path, stage: str, stable_name: Callable[[str], str] = str
) -> BenchmarkReading:
    """Read the results of a stage in the results folder of its platform.

    ``stable_name`` makes names independent of the folders of the run.
    """
    try:
        figures = [*_figures(_documents(folder, benchmark_file(stage)))]
        named = [it._replace(name=_clean(stable_name(it.name))) for it in figures]
        failed = tuple(it.name for it in named if it.value is None)
        measured = [it for it in named if it.value is not None]
        if not measured:
            also = f": {counted(len(failed), 'benchmark')} failed" if failed else ""
            raise ValueError(f"no benchmark has a value{also}")
        results = [_result(stage, it) for it in measured]
        _refuse_duplicates(results)
    except ValueError as error:
        return BenchmarkReading(fault=make_inert(str(error)))
    return BenchmarkReading(results=tuple(results), without_value=failed)


def within_limits(results: Sequence[BenchmarkResult]) -> tuple[BenchmarkResult, ...]:
    """Return the first results of a platform, as many as ``results.json`` may have."""
    sizes = accumulate(len(it.model_dump_json()) for it in results[:MOST_BENCHMARKS])
    return tuple(results[: sum(size <= LARGEST_BENCHMARKS for size in sizes)])


def _clean(name: str) -> str:
    """A name on one line: a command line may have several."""
    return make_inert(" ".join(name.split()))


def _result(stage: str, figure: Figure) -> BenchmarkResult:
    try:
        _number(figure.value)
        return BenchmarkResult(stage=stage, **figure._asdict())
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(map(str, fault["loc"]))
        message = f"got {fault['input']!r:.100}: {fault['msg']}"
        raise ValueError(f"benchmark {_shown(figure.name)}: {field}: {message}") from None


def _refuse_duplicates(results: Sequence[BenchmarkResult]) -> None:
    seen: set[tuple[str, str, Direction]] = set()
    for it in results:
        if (key := (it.name, it.unit, it.direction)) in seen:
            raise ValueError(f"duplicate benchmark {_shown(it.name)}: expected each name once")
        seen.add(key)


def _shown(name: str) -> str:
    return repr(shorten(name, 100))


# Files


class _Document(NamedTuple):
    """A decoded file, by its name for messages."""

    name: str
    content: Object


def _documents(folder: Path, name: str) -> list[_Document]:
    """The JSON objects in the file of a stage, or in the archive of its folder.

    Other files of a folder, such as logs, are ignored. Raises ``ValueError``.
    """
    file, archive = folder / name, folder / f"{name}.tar.gz"
    if file.is_file():
        _check_size("a file", file.stat().st_size)
        text = read_text_file(file)
        if text is None:
            raise ValueError("the file cannot be read")
        return [_Document("the file", _decode("the file", text))]
    if not archive.is_file():
        raise ValueError("the stage wrote no such file")
    members = read_archive(archive)
    found = [it for it in members or () if it.name.endswith(".json")]
    if not found:
        raise ValueError("the folder has no readable JSON file")
    _check_size("JSON files", sum(len(it.content) for it in found))
    return [_Document(it.name, _decode(it.name, _text(it))) for it in found]


def _check_size(what: str, size: int) -> None:
    """Raise ``ValueError`` for what may not fit into memory: JSON can take 20 times its size."""
    if size > LARGEST_FILE:
        raise ValueError(f"got {what} of {size:,} bytes, expected at most {LARGEST_FILE:,}")


def _text(member: ArchiveMember) -> str:
    return member.content.decode(errors="replace")


def _decode(name: str, text: str) -> Object:
    try:
        content = make_json_storable(text, parse(text, constants=True))
    except ValueError as error:
        raise ValueError(f"{name} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{name}: got a {type(content).__name__}, expected an object of {FORMATS}")
    return content


# Formats


def _figures(documents: Sequence[_Document]) -> Iterator[Figure]:
    """Yield the benchmarks of all files; raises ``ValueError`` if one has an unknown format."""
    about = next((it.content for it in documents if _is_asv_index(it.content)), {})
    for name, content in documents:
        read = next((read for matches, read in _FORMATS if matches(content)), None)
        try:
            if read is not None:
                yield from read(content)
            elif _is_asv_result(content):
                yield from _asv(content, about)
            elif not (_is_asv_index(content) or _is_asv_machine(content)):
                raise ValueError(f"unknown format, expected {FORMATS}")
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            what = f"missing {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{name} is damaged: {what}") from None
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


def _rows(content: Object, key: str) -> list[Object]:
    rows = content[key]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TypeError(f"'{key}' is not a list of objects")
    return rows


def _has_rows(content: Object, key: str, field: str) -> bool:
    """Whether a list of objects is at the key, of which the first has the field."""
    rows = content.get(key)
    return isinstance(rows, list) and bool(rows) and isinstance(rows[0], dict) and field in rows[0]


def _pytest_benchmark(content: Object) -> Iterator[Figure]:
    """https://pytest-benchmark.readthedocs.io: seconds, with statistics of the rounds."""
    for row in _rows(content, "benchmarks"):
        stats = row["stats"]
        yield Figure(str(row["fullname"]), stats["median"], repetitions=stats.get("rounds"))


def _google(content: Object) -> Iterator[Figure]:
    """Google Benchmark: each repetition has a row, and so have aggregates, perhaps only these."""
    repeated: dict[str, list[Object]] = {}
    medians: dict[str, Object] = {}
    for row in _rows(content, "benchmarks"):
        name = str(row.get("run_name", row["name"]))
        if row.get("run_type", "iteration") == "iteration":
            repeated.setdefault(name, []).append(row)
        elif row.get("aggregate_name") == "median":
            medians[name] = row
    for name, rows in repeated.items():
        failed = ("error_occurred", "skipped")
        known = [_number(it["real_time"]) for it in rows if not any(map(it.get, failed))]
        value = median(known) if known else None
        yield Figure(name, value, rows[0].get("time_unit", "ns"), repetitions=len(known))
    for name, row in medians.items():
        if name not in repeated:
            unit, count = row.get("time_unit", "ns"), row.get("repetitions")
            yield Figure(name, row["real_time"], unit, repetitions=count)


def _hyperfine(content: Object) -> Iterator[Figure]:
    for row in _rows(content, "results"):
        times = row.get("times")
        value = row["median"] if row.get("median") is not None else row["mean"]
        repetitions = len(times) if isinstance(times, list) else None
        yield Figure(str(row["command"]), value, repetitions=repetitions)


def _own(content: Object) -> Iterator[Figure]:
    """``bench.json`` of this project: goals are upper limits."""
    for row in _rows(content, "rows"):
        yield Figure(str(row["key"]), row["value"], str(row["unit"]).replace(" ", "_"))


def _minimal(content: Object) -> Iterator[Figure]:
    """The form for any other tool: unknown keys are ignored, as the tool may have more to say."""
    for row in _rows(content, "benchmarks"):
        direction = row["direction"]
        if direction not in [*Direction]:
            got = f"got direction {direction!r:.40}, expected {' or '.join(Direction)}"
            raise ValueError(f"benchmark {row['name']!r:.100}: {got}")
        if not isinstance(row["name"], str):
            raise TypeError(f"the name {row['name']!r:.40} is no text")
        yield Figure(row["name"], row["value"], row["unit"], direction, row.get("repetitions"))


_FORMATS: tuple[tuple[Callable[[Object], bool], Callable[[Object], Iterator[Figure]]], ...] = (
    (lambda it: "machine_info" in it and "benchmarks" in it, _pytest_benchmark),
    (lambda it: "context" in it and "benchmarks" in it, _google),
    (lambda it: _has_rows(it, "results", "command"), _hyperfine),
    (lambda it: _has_rows(it, "rows", "at_most"), _own),
    (lambda it: isinstance(it.get("benchmarks"), list), _minimal),
)


# asv: https://asv.readthedocs.io: a file for each environment, and one about the benchmarks

_ASV_UNITS = {"seconds": "s", "byte": "bytes"}
_ASV_KINDS = {"time": "s", "timeraw": "s", "mem": "bytes", "peakmem": "bytes"}  # begin the names


def _is_asv_result(content: Object) -> bool:
    return isinstance(content.get("result_columns"), list) and "results" in content


def _is_asv_index(content: Object) -> bool:
    entries = [it for it in content.values() if isinstance(it, dict)]
    return "version" in content and bool(entries) and all("code" in it for it in entries)


def _is_asv_machine(content: Object) -> bool:
    return {"machine", "os", "version"} <= content.keys()


def _asv(content: Object, about: Object) -> Iterator[Figure]:
    """asv's columns: values, the values of each parameter, and more; null: it failed."""
    columns = content["result_columns"]
    for name, row in content["results"].items():
        cells = dict(zip(columns, row, strict=False)) if isinstance(row, list) else {"result": row}
        values, params = cells["result"], cells.get("params") or []
        values = values if isinstance(values, list) else [values]
        # A hostile file may have few values and billions of combinations.
        if prod(map(len, params)) != len(values):
            raise ValueError(f"{name}: got {len(values):,} values for its parameters")
        samples = cells.get("samples") or [None] * len(values)
        for value, chosen, repeated in zip(values, product(*params), samples, strict=False):
            shown = f"({', '.join(map(str, chosen))})" if chosen else ""
            repetitions = len(repeated) if isinstance(repeated, list) else None
            unit = _asv_unit(name, about)
            yield Figure(f"{name}{shown}", value, unit, repetitions=repetitions)


def _asv_unit(name: str, about: Object) -> str:
    known = about.get(name)
    unit = str(known.get("unit", "")) if isinstance(known, dict) else ""
    kind = name.rpartition(".")[2].partition("_")[0]
    return _ASV_UNITS.get(unit, unit.replace(" ", "_")) or _ASV_KINDS.get(kind, "")


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"got value {value!r:.40}, expected a number")
    return float(value)
