"""Benchmark stages of the agent: whose results it takes, and when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.model.results import RunResult
from ci.model.verdicts import Product
from ci.protocol.agent_files import benchmark_file
from ci.protocol.stage_kind import StageKind
from tests.ci.agent_job import Job
from tests.ci.workplace import CONFIG, Workplace, new_workplace

WRITE = "open('out.json', 'w').write({!r})"
STAGE = """\
- name: bench
  kind: benchmark
  command: python bench.py
  benchmarks: out.json
"""


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = new_workplace(tmp_path)
    work.write("ci.yaml", CONFIG.replace("artifacts:", f"{STAGE}artifacts:"))
    return work


def write_benchmarks(work: Workplace, program: str) -> None:
    work.write("bench.py", program)
    work.commit()


def row(value: float) -> str:
    content = {"name": "load", "value": value, "unit": "images/s", "direction": "higher"}
    return json.dumps({"benchmarks": [content]})


# The agent


def test_each_stage_has_its_own_results(job: Job) -> None:
    """Two stages write one file, which a later one changes."""
    for name in ("first", "second"):
        job.python(name, WRITE.format(name), kind=StageKind.BENCHMARK, benchmarks="out.json")
    job.python("third", WRITE.format("third"))
    assert job.run() == 0
    found = [job.results / benchmark_file(name) for name in ("first", "second")]
    assert [it.read_text() for it in found] == ["first", "second"]


@pytest.mark.parametrize("path", ["old.json", "old"])
def test_older_results_do_not_count(job: Job, path: str) -> None:
    old = job.workspace / path
    if path == "old":
        (old / "deep").mkdir(parents=True)
        (old / "deep" / "a.json").touch()
    else:
        old.touch()
    job.python("bench", "", kind=StageKind.BENCHMARK, benchmarks=path)
    assert job.run() == 0
    assert not old.exists()
    [missing] = job.events("artifact_missing")
    assert (missing["name"], missing["path"]) == (benchmark_file("bench"), path)


def test_a_link_is_removed_and_not_what_it_names(job: Job, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (job.workspace / "out").symlink_to(kept)
    job.python("bench", "", kind=StageKind.BENCHMARK, benchmarks="out")
    assert job.run() == 0
    assert kept.is_dir()


def test_a_pipe_is_no_result(job: Job) -> None:
    program = "import os; os.mkfifo('out.json')"
    job.python("bench", program, kind=StageKind.BENCHMARK, benchmarks="out.json")
    assert job.run() == 0
    assert not (job.results / benchmark_file("bench")).exists()
    assert len(job.events("artifact_missing")) == 1


# From there to the row


def test_results_become_a_part_of_the_row(work: Workplace) -> None:
    write_benchmarks(work, f"open('out.json', 'w').write('''{row(1520)}''')")
    result = work.only()
    assert result.verdict.product is Product.PASSED
    [found] = result.benchmarks
    assert (found.stage, found.name, found.value, found.unit) == ("bench", "load", 1520, "images/s")
    assert result.stages[-1].in_total is False
    with work.open_store() as store:
        [measured] = store.measured_on({"cpu": store.heads()}).values()
    assert measured[0].values["bench.higher:images/s:load"] == 1520


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("", "the stage wrote no such file"),
        ("open('out.json', 'w').write('{')", "the file is no JSON: "),
        ("open('out.json', 'w').write('{}')", "the file: unknown format, expected "),
        ("import os; os.mkdir('out.json')", "the folder has no readable JSON file"),
    ],
)
def test_without_results_the_run_is_incomplete(work: Workplace, program: str, fault: str) -> None:
    write_benchmarks(work, program)
    verdict = work.only().verdict
    assert verdict.product is Product.INCOMPLETE
    reason = f"stage bench: no results of benchmarks in out.json: {fault}"
    assert (verdict.reason or "").startswith(reason)
    assert len([it for it in verdict.evidence if "out.json" in it.text]) == 1


def test_failed_tests_are_the_verdict_and_missing_results_a_reason(work: Workplace) -> None:
    """The benchmark comes first here, and its missing results do not hide the tests."""
    text = CONFIG.replace("- name: pytest", f"{STAGE}- name: pytest")
    work.write("ci.yaml", text)
    work.write("tests/test_a.py", "def test_a(): assert False\n")
    write_benchmarks(work, "")
    verdict = work.only().verdict
    assert verdict.product is Product.FAILED
    assert any(it.code == "benchmarks-unreadable" for it in verdict.evidence)


def test_a_failed_command_fails_the_run(work: Workplace) -> None:
    write_benchmarks(work, f"open('out.json', 'w').write('''{row(1)}'''); raise SystemExit(3)")
    result = work.only()
    assert result.verdict.product is Product.FAILED
    assert (result.verdict.reason or "").startswith("stage bench ended with exit code 3")
    assert result.benchmarks == ()


def test_failed_benchmarks_are_noted(work: Workplace) -> None:
    rows = json.loads(row(1))
    rows["benchmarks"].append({**rows["benchmarks"][0], "name": "save", "value": None})
    write_benchmarks(work, f"open('out.json', 'w').write('''{json.dumps(rows)}''')")
    result = work.only()
    assert result.verdict.product is Product.PASSED
    assert "stage bench: 1 benchmark without a value: save" in result.notes


def test_benchmarks_above_the_limit_are_counted(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ci.facts.benchmarks.MOST_BENCHMARKS", 1)
    rows = json.loads(row(1))
    rows["benchmarks"] += [{**rows["benchmarks"][0], "name": f"b{n}"} for n in range(2)]
    write_benchmarks(work, f"open('out.json', 'w').write('''{json.dumps(rows)}''')")
    result: RunResult = work.run()[0]
    assert [it.name for it in result.platforms[0].benchmarks] == ["load"]
    note = "2 benchmarks left out: there are more than a result can have"
    assert note in result.platforms[0].notes
    assert (work.results / "latest" / "results.json").stat().st_size < 20_000
