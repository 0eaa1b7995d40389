"""Benchmarks over the runs: detected, judged and shown as the stages are."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from ci.analysis.changes import analyze
from ci.analysis.histories import history
from ci.analysis.platform_history import platform_histories, project_line
from ci.errors import ExitCode
from ci.facts.environment_key import environment_key
from ci.gates.regression import Judgement
from ci.model.results import BenchmarkResult, Direction, PlatformResult, StageResult
from ci.report.dashboard.platform import MOST_PLOTTED
from ci.report.document import print_document
from ci.report.history_report import MOST_ROWS, HistoryReport
from ci.store.rows import RunMeasures
from tests.ci.stored_history import BEGIN, Project, expect, noisy, result

LOWER, HIGHER = Direction
SUM, IMAGES = "bench: tests/bench.py::test_sum", "bench: images"
BENCH = StageResult(name="bench", seconds=1.0, exit_code=0, in_total=False)


def benchmark(name: str, value: float, **changes: object) -> BenchmarkResult:
    fields = {"stage": "bench", "name": name, "value": value, "unit": "s", "direction": LOWER}
    return BenchmarkResult.model_validate({**fields, **changes})


def images(value: float) -> BenchmarkResult:
    return benchmark("images", value, unit="images/s", direction=HIGHER)


def row(*benchmarks: BenchmarkResult, exit_code: int = 0) -> PlatformResult:
    stage = BENCH.model_copy(update={"exit_code": exit_code})
    return result(stages=(*result().stages, stage), benchmarks=benchmarks)


def measure(project: Project, series: Sequence[Sequence[BenchmarkResult]]) -> list[str]:
    """Commits, each with a run that had these benchmarks."""
    commits = []
    for benchmarks in series:
        commits.append(project.commit())
        project.run(commits[-1], row(*benchmarks))
    return commits


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """From the seventh run on, a sum takes longer and fewer images are loaded."""
    project = Project(folder=tmp_path_factory.mktemp("benchmarks"))
    before, after = (noisy(level, 6, seed) for seed, level in enumerate((3e-7, 4e-7)))
    fast, slow = (noisy(level, 6, seed) for seed, level in enumerate((1500.0, 1000.0), 5))
    pairs = zip((*before, *after), (*fast, *slow), strict=True)
    measure(
        project,
        [(benchmark("tests/bench.py::test_sum", a), images(b)) for a, b in pairs],
    )
    project.configure()
    return project


@pytest.fixture
def project(stored: Project, tmp_path: Path) -> Project:
    return stored.copy(tmp_path)


def test_history_shows_a_table_of_benchmarks(project: Project) -> None:
    text = expect(project.tracked(), "1 open regression", SUM, f"{IMAGES} -")
    assert "tests/bench.py::test_sum  " in text
    assert "smallest detectable change: install" in text
    assert ", 2 benchmarks " in text


def test_a_fall_of_what_should_be_high_is_a_regression(project: Project) -> None:
    answer = project.tracked("--check", "--measure", "IMAGES")
    text = expect(answer, f"{IMAGES} -4", code=ExitCode.REGRESSION)
    assert "between run-005" in text
    assert SUM not in text


@pytest.mark.parametrize("name", ["images", "tests/bench.py::test_sum"])
def test_the_commit_of_an_alarm_is_found_by_its_benchmark(project: Project, name: str) -> None:
    """Not by the seconds of the stage: most tools fill a given time with repetitions."""
    said = project.ci("history", "--measure", name, "--check", "--format", "json")
    [alarm] = json.loads(said[1])["alarms"]
    assert f" --stage bench --measure {name} " in alarm["bisect"]


def test_a_rise_of_what_should_be_high_is_an_improvement(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    measure(project, [[images(it)] for it in (*noisy(1000.0, 6), *noisy(1500.0, 6, 2))])
    expect(project.tracked("--check"), "no open regression")
    expect(project.tracked(), "1 improvement", f"{IMAGES} +")


def test_a_fall_that_a_later_run_undid_is_past(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    levels = ((1500.0, 1), (1000.0, 2), (1490.0, 3))
    values = [it for level, seed in levels for it in noisy(level, 8, seed)]
    measure(project, [[images(it)] for it in values])
    expect(project.tracked("--check"), "no open regression")
    expect(project.tracked(), "1 past regression", "undone by run-016")


def test_a_measure_that_no_run_has_is_refused(project: Project) -> None:
    answer = project.tracked("--check", "--measure", "nothing")
    message = "--measure: cpu has no measure with 'nothing' in its name"
    expect(answer, message, "It has: CPU, executed tests, images", code=ExitCode.USAGE)


def test_two_versions_are_compared(project: Project) -> None:
    answer = project.compare("run-000", "run-011/cpu", "--fail-on", "regression")
    text = expect(answer, f"regression: {SUM} +", code=ExitCode.REGRESSION)
    assert text.count("   regression ") == 2
    backwards = project.compare("run-011", "run-000/cpu", "--fail-on", "regression")
    assert expect(backwards).count("   improvement ") == 2


def test_a_fall_is_accepted_and_withdrawn(project: Project) -> None:
    """Both directions are in one shift. The file has them by direction, unit and name."""
    expect(project.accept("run-006", "--reason", "a new format"), "images")
    file = (project.source / "ci-accepted.yaml").read_text(encoding="utf-8")
    assert "quantity: higher:images/s:images\n" in file
    assert "quantity: lower:s:tests/bench.py::test_sum\n" in file
    expect(project.tracked("--check"), "no open regression")
    later = project.tracked("--measure", "images")
    expect(later, "1 past regression", "accepted on ")
    measure(project, [[images(it)] for it in noisy(700.0, 6, 9)])
    expect(project.tracked("--check"), IMAGES, code=ExitCode.REGRESSION)
    expect(project.withdraw("run-006"), "images down to 1")


@pytest.mark.parametrize("quantity", ["higher:images", "install.wall_s", "bench.lower:s:a"])
def test_an_unknown_quantity_is_refused(project: Project, quantity: str) -> None:
    entry = f"{{platform: cpu, stage: bench, quantity: '{quantity}', level: 1, run: a}}"
    text = f"project: tiny\naccepted:\n  - {entry}\n"
    (project.source / "ci-accepted.yaml").write_text(text, encoding="utf-8")
    message = "or 'direction:unit:name' of a benchmark"
    expect(project.tracked("--check"), message, code=ExitCode.USAGE)


def test_a_failed_stage_has_no_measures(project: Project) -> None:
    project.run(project.commit(), row(images(1.0), exit_code=2))
    with project.open() as store:
        [measured] = store.measured_on({"cpu": store.heads()}).values()
    assert [len([it for it in run.values if ":" in it]) for run in measured] == [0] + [2] * 12


def test_benchmarks_are_exported(project: Project, tmp_path: Path) -> None:
    output = tmp_path / "tables"
    expect(project.ci("export", "--output", str(output), "--format", "csv"))
    with (output / "measures.csv").open(encoding="utf-8", newline="") as file:
        rows = [it for it in csv.DictReader(file) if it["measure"].startswith("bench.higher")]
    assert {it["measure"] for it in rows} == {"bench.higher:images/s:images"}
    assert len(rows) == 12
    with (output / "benchmarks.csv").open(encoding="utf-8", newline="") as file:
        first = next(csv.DictReader(file))
    assert (first["benchmark"], first["unit"]) == ("tests/bench.py::test_sum", "s")
    assert (first["stage"], first["direction"], first["repetitions"]) == ("bench", "lower", "")


def test_json_has_every_benchmark(project: Project) -> None:
    found = json.loads(expect(project.tracked("--format", "json")))
    measures = [it["measure"] for it in found["environments"][0]["series"]]
    assert measures[-2:] == [
        "bench.higher:images/s:images",
        "bench.lower:s:tests/bench.py::test_sum",
    ]
    change = found["environments"][0]["shifts"][0]["changes"][0]
    assert change["measure"] in measures


@pytest.mark.parametrize("direction", Direction)
def test_levels_of_zero_are_judged(tmp_path: Path, direction: Direction) -> None:
    """Such as errors, or allocated bytes: up from 0, back, and up again."""
    project = Project(folder=tmp_path)
    levels = [0.0] * 6 + noisy(5.0, 6) + [0.0] * 6 + noisy(7.0, 6, 2)
    measure(project, [[benchmark("a", it, unit="", direction=direction)] for it in levels])
    is_worse = direction is LOWER
    code = ExitCode.REGRESSION if is_worse else ExitCode.PASSED
    expect(project.tracked("--check"), "bench: a +7" if is_worse else "no open", code=code)
    assert "from 0 on 2026-01-0" in expect(project.tracked())
    json.loads(expect(project.tracked("--format", "json")))
    for pair in (
        ("run-000", "run-023/cpu"),
        ("run-023", "run-000/cpu"),
        ("run-000", "run-014/cpu"),
    ):
        expect(project.compare(*pair), "bench")
        json.loads(expect(project.compare(*pair, "--format", "json")))


# Many of them


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """300 benchmarks with long names, of which 40 take longer from the seventh run on."""
    project = Project(folder=tmp_path_factory.mktemp("many"))
    name = "tests/benchmarks/test_operators.py::test_contiguous[float32-{}]"
    series = [
        (*noisy(1.0, 6, n), *noisy(2.0 if n % 8 == 0 and n < 320 else 1.0, 6, n + 1000))
        for n in range(300)
    ]
    runs = [
        [benchmark(name.format(n), values[run]) for n, values in enumerate(series)]
        for run in range(12)
    ]
    measure(project, runs)
    return project


def test_a_table_of_many_is_bounded_and_begins_with_the_changed_ones(many: Project) -> None:
    text = expect(many.tracked())
    rows = [line for line in text.splitlines() if line.startswith("tests/b")]
    assert len(rows) == MOST_ROWS
    assert all(" on 2026-01-01" in line for line in rows)
    assert "and 280 more benchmarks: see some with --measure TEXT, all with --format json" in text
    assert len(text.splitlines()) < 80


def test_a_table_of_many_fits_on_a_screen(many: Project) -> None:
    """No cell of a benchmark is folded in a terminal of 80 columns."""
    with many.open() as store:
        along = project_line(store, "tiny", many.folder)
        [record] = platform_histories(store, ["cpu"], along, stage="bench", text="test_")
    shown = StringIO()
    print_document(HistoryReport(record).document(page=False), Console(file=shown, width=80))
    lines = shown.getvalue().splitlines()
    table = lines[next(n for n, line in enumerate(lines) if "Benchmark" in line) :]
    rows = table[2 : 2 + MOST_ROWS]
    ends = ("tests/b...", "on 2026-01-01")
    assert all((row[:10], row.rstrip()[-13:]) == ends and len(row) <= 80 for row in rows)


def test_many_regressions_of_one_commit_are_one_alarm(many: Project) -> None:
    text = expect(many.tracked("--check"), "1 open regression", code=ExitCode.REGRESSION)
    assert len(text.splitlines()) < 30
    text = expect(many.ci("history", "--check"), code=ExitCode.REGRESSION)
    assert len(text.splitlines()) < 60
    compared = expect(many.compare("run-000", "run-011/cpu"))
    assert "and 280 more benchmarks: --format json shows all" in compared
    assert len(compared.splitlines()) < 60


def test_a_page_of_the_dashboard_has_the_changed_ones(many: Project, tmp_path: Path) -> None:
    output = tmp_path / "pages"
    expect(many.ci("dashboard", "--output", str(output), "--source", str(many.folder)))
    text = (output / "data" / "platform-cpu.js").read_text(encoding="utf-8")
    found = json.loads(text[text.index("{") : text.rindex("}") + 1])
    shown = [it for it in found["measures"] if it["stage"] == "bench" and it["unit"] == "s"]
    assert len(shown) == MOST_PLOTTED
    changed = {it["measure"] for it in found["marks"] if it["kind"] == "open regression"}
    assert len(changed) == 38
    assert changed <= {it["name"] for it in shown}
    assert {it["quantity"] for it in shown} == {it["name"].split(":", 2)[2] for it in shown}


# The false alarms


def analyzed(values: Mapping[str, Sequence[float]]) -> list[Judgement]:
    """The judgments on series of one environment."""
    key = environment_key(row())
    runs = [
        RunMeasures(str(n), None, False, BEGIN, "key", {k: it[n] for k, it in values.items()})
        for n in range(len(next(iter(values.values()))))
    ]
    return [it.judgement for _, it in history(runs, {"key": key}).shifts]


def test_thousands_of_steady_benchmarks_raise_no_alarm() -> None:
    noise = random.Random(7)  # noqa: S311
    steady = {f"bench.lower:s:{n}": [noise.gauss(1, 0.05) for _ in range(40)] for n in range(2000)}
    assert Judgement.REGRESSION not in analyzed(steady)


def test_benchmarks_cost_the_stages_no_power() -> None:
    """A rise of the install that is just confirmed alone is confirmed beside 5,000 benchmarks."""
    noise = random.Random(4)  # noqa: S311
    values = [noise.gauss(level, 1.6) for level in (*[100.0] * 15, *[104.2] * 6)]
    beside = {f"bench.lower:s:{n}": [1.0] * len(values) for n in range(5000)}
    assert analyzed({"install.cpu_s": values}) == [Judgement.REGRESSION]
    assert analyzed({"install.cpu_s": values, **beside}) == [Judgement.REGRESSION]
    # One family for all would not find it.
    together = analyze({"install": values, **beside})["install"]
    assert not any(it.confirmed for it in together.changes)
