"""The table, the same everywhere; the published release as the reference."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ci.facts.sentences import on_harness
from ci.facts.sentences.on_rows import reported
from ci.facts.sentences.on_tests import failed_tests
from ci.model.fields import LONGEST_TEST
from ci.model.outcomes import Outcome
from ci.model.results import BuildResult, Distribution, Failure, RunResult, StageResult, title
from ci.model.verdicts import Grade, Harness, Product, Verdict
from ci.report.table import (
    ALWAYS_EXPLAINED,
    EXPLAINED,
    HEADINGS,
    STAGE_HEADINGS,
    ResultsReport,
    build_text,
    distribution_text,
    stage_rows,
    table_rows,
)
from tests.ci.made_results import made_verdict
from tests.ci.published import PUBLISHED, platform_result, table_markdown

REFERENCE = Path(__file__).parents[1] / "data" / "published.md"


def terminal(run: RunResult, width: int = 200, *, explain: bool = False) -> str:
    console = Console(file=StringIO(), width=width)
    ResultsReport(run, explain=explain).print(console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_published_table(published: RunResult) -> None:
    assert table_markdown(published.platforms) == REFERENCE.read_text(encoding="utf-8")


def test_the_terminal_shows_the_same_cells(published: RunResult) -> None:
    text = terminal(published)
    for row in (HEADINGS, *table_rows(published.platforms)):
        assert all(cell.replace("`", "") in text for cell in row)
    assert "product passed, harness exit_after_summary" in text
    assert "fact: exit code 137 after the pytest summary" in text


def test_words_are_explained_on_request(published: RunResult) -> None:
    text = terminal(published, explain=True)
    for word in ("product", "harness", "clean", "exit_after_summary", "fact"):
        assert text.index(f"\n{word}: ") > text.index("product passed, harness ")
    assert "likely: " not in text  # no evidence of it
    assert "overhead: " not in text
    assert "\n* harness: what runs the product" in ResultsReport(published).markdown()
    silent = terminal(published)
    assert "what runs the product" not in silent
    command = f"    python -m ci report {published.run_id} --explain\n"
    assert f"\nWhat exit_after_summary means:\n{command}" in silent


def test_usual_words_need_no_explanation(published: RunResult) -> None:
    run = published.model_copy(update={"platforms": published.platforms[:1]})
    assert "--explain" not in terminal(run)


def test_the_verdicts_are_below_the_table(published: RunResult) -> None:
    lines = [line.rstrip() for line in terminal(published).splitlines()]
    table = next(n for n, line in enumerate(lines) if line.startswith("Platform"))
    platforms = published.platforms
    found = [
        lines.index(f"{it.label}: product passed, harness {it.verdict.harness}") for it in platforms
    ]
    assert [table, *found] == sorted([table, *found])


def test_every_word_of_a_verdict_is_explained_in_a_line_of_80_columns() -> None:
    words = {*Product, *Harness, *Grade} - {Product.PASSED, Product.FAILED}
    assert words < EXPLAINED.keys()
    lines = [f"{it}: {text}" for it, text in {**ALWAYS_EXPLAINED, **EXPLAINED}.items()]
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_loses_nothing(published: RunResult, width: int) -> None:
    text = "".join(terminal(published, width).split())
    for row in (HEADINGS, *table_rows(published.platforms)):
        assert "".join(row.platform.split()) in text
        assert "".join(row.notes.split()) in text


def test_headings_are_whole_words_at_80_columns(published: RunResult) -> None:
    words = terminal(published, width=80).split()
    headings = " ".join((*HEADINGS, *STAGE_HEADINGS)).replace("`", "")
    assert set(headings.split()) <= set(words)


def test_the_page_has_origin_evidence_and_stages(published: RunResult) -> None:
    text = ResultsReport(published).markdown()
    assert text.startswith("# infini-ops: 20260101T120000Z-0123abcd-00ff\n")
    assert "docker engine, 2026-01-01 12:00:00 UTC" in text
    assert "Product: **passed**. Harness: **exit_after_summary**." in text
    assert "* fact: exit code 137 after the pytest summary" in text
    assert "| install | 888.8 s | 2667.0 s | 11.5 s | 3072 MiB | 0 | yes |" in text
    assert "| image | 0.4 s | - | - | - | 0 | no |" in text


def test_the_parts_of_a_build_are_shown_below_its_stages(published: RunResult) -> None:
    build = BuildResult(
        configure_s=0.44,
        compile_s=12.224,
        link_s=0.535,
        translation_units=13,
        wheel_bytes=1133561,
        generated_lines=53253,
    )
    line = (
        "build, included in the stages: configure 0.4 s, compile 12.2 s (13 translation units),"
        " link 0.5 s, 53,253 generated lines, wheel 1.1 MiB"
    )
    result = published.platforms[0].model_copy(update={"build": build})
    run = published.model_copy(update={"platforms": (result,)})
    assert line in terminal(run)
    assert f"\n\nB{line[1:]}.\n" in ResultsReport(run).markdown()


def test_only_known_measures_of_a_build_are_shown() -> None:
    known = BuildResult(link_s=0.0, wheel_bytes=0)
    assert build_text(known) == "build, included in the stages: link 0.0 s, wheel 0.0 MiB"
    assert build_text(BuildResult(compile_s=2.0)) == "build, included in the stages: compile 2.0 s"


def test_a_distribution_on_a_line() -> None:
    name = "tiny-1.0-cp310-abi3-manylinux_2_28_x86_64.whl"
    wheel = Distribution(name=name, sha256="5e" * 32, size_bytes=1331877, installed=True)
    short = "SHA-256 5e5e5e5e5e5e, 1.3 MiB"
    platform = "for manylinux_2_28_x86_64 with glibc 2.28 or newer"
    assert distribution_text(wheel) == f"{name}: {short}, {platform}, installed"
    own = wheel.model_copy(update={"name": "tiny-1-cp310-abi3-linux_x86_64.whl", "glibc": "2.34"})
    assert "for linux_x86_64 with glibc 2.34 or newer" in distribution_text(own)
    plain = wheel.model_copy(update={"name": "tiny-1-py3-none-any.whl", "installed": False})
    assert distribution_text(plain) == f"{plain.name}: {short}, for any, not installed"
    sdist = wheel.model_copy(update={"name": "tiny-1.tar.gz", "given": True})
    assert distribution_text(sdist) == f"tiny-1.tar.gz: {short}, made elsewhere"


def test_a_report_has_the_distributions_of_each_platform(published: RunResult) -> None:
    wheel = Distribution(name="tiny-1-py3-none-any.whl", sha256="5e" * 32, size_bytes=1)
    first, *others = published.platforms
    changed = first.model_copy(update={"distributions": (wheel,)})
    run = published.model_copy(update={"platforms": (changed, *others)})
    assert "file tiny-1-py3-none-any.whl: SHA-256 5e5e5e5e5e5e" in ResultsReport(run).markdown()
    assert "file tiny-1-py3-none-any.whl: SHA-256 5e5e5e5e5e5e" in terminal(run)


def test_a_platform_that_was_not_run(published: RunResult) -> None:
    reason = "cannot pull a|b\nat all"
    verdict = made_verdict(Product.NOT_RUN, reason, harness=Harness.INFRASTRUCTURE)
    missing = {"built": None, "pytest": None, "build_install_s": None, "pytest_s": None}
    result = platform_result(
        "CPU",
        PUBLISHED[0][1:],
        **missing,
        total_s=None,
        stages=(StageResult(name="install", seconds=None, exit_code=None, in_total=True),),
        verdict=verdict,
        notes=("not run: cannot pull a|b\nat all",),
    )
    run = published.model_copy(update={"platforms": (result,)})
    assert "| CPU | - | not run | - | - | - | Not run: cannot pull a\\|b at all. |" in (
        table_markdown(run.platforms)
    )
    assert "* fact: cannot pull a\\|b at all" in ResultsReport(run).markdown()
    assert "| install | - | - | - | - | not run | yes |" in ResultsReport(run).markdown()


def test_a_session_without_an_end_shows_what_it_counted() -> None:
    result = platform_result("CPU", PUBLISHED[0][1:])
    assert result.pytest is not None
    counts = result.pytest.model_copy(update={"summary": None, "failed": 2, "skipped": 0})
    [row] = table_rows([result.model_copy(update={"pytest": counts})])
    assert row.pytest_result == "no summary; counted so far: 2 failed, 9206 passed"


HOSTILE = (
    "t.py::test_x[<img src=x onerror=alert(1)>|**b**|`c`|[d](e)] \x1b[31m__f__\x07\x1b]0;g\x07"
)


def hostile(run: RunResult) -> RunResult:
    verdict = made_verdict(Product.FAILED, HOSTILE)
    result = platform_result("CPU", PUBLISHED[0][1:], verdict=verdict, notes=(HOSTILE,))
    return run.model_copy(update={"platforms": (result,)})


def test_a_page_shows_names_as_they_are(published: RunResult) -> None:
    text = ResultsReport(hostile(published)).markdown()
    shown = (
        r"t.py::test_x\[&lt;img src=x onerror=alert(1)&gt;\|\*\*b\*\*\|\`c\`\|\[d\](e)\]"
        " \\_\\_f\\_\\_\N{REPLACEMENT CHARACTER}"
    )
    assert f"* fact: {shown}\n" in text
    assert f"| {shown[0].upper()}{shown[1:]}. |" in text


def test_names_cannot_control_the_terminal(published: RunResult) -> None:
    text = terminal(hostile(published), width=300)
    plain = "test_x[<img src=x onerror=alert(1)>|**b**|`c`|[d](e)] __f__\N{REPLACEMENT CHARACTER}"
    assert text.count(plain) == 3
    assert not {"\x1b", "\x07"} & set(text)


def stage(name: str, seconds: float | None, exit_code: int | None) -> StageResult:
    return StageResult(name=name, seconds=seconds, exit_code=exit_code, in_total=False)


def test_the_host_engine_has_no_image() -> None:
    stages = (stage("image", 1.25, 0),)
    for engine, name in (("host", "environment"), ("docker", "image")):
        environment = {"engine": {"name": engine}}
        result = platform_result("CPU", PUBLISHED[0][1:], stages=stages, environment=environment)
        assert stage_rows(result)[0].stage == name


def test_a_stage_that_was_ended_has_no_exit_code() -> None:
    stages = (stage("x", 1.25, None),)
    [row] = stage_rows(platform_result("CPU", PUBLISHED[0][1:], stages=stages))
    assert row == ("x", "1.2 s", "-", "-", "-", "-", "no")


@pytest.mark.parametrize(
    ("install", "suite", "exit_codes", "result"),
    [
        ((2.0, 1), (None, None), ["1", "not run", "not run"], "not run"),
        ((2.0, 0), (None, None), ["0", "no result", "no result"], "no result"),
        ((2.0, 0), (1.0, 4), ["0", "4", "not run"], "no result"),
        ((None, None), (None, None), ["no result", "no result", "no result"], "no result"),
    ],
)
def test_what_has_begun_is_never_shown_as_not_run(
    install: tuple[float | None, int | None],
    suite: tuple[float | None, int | None],
    exit_codes: list[str],
    result: str,
) -> None:
    stages = (stage("install", *install), stage("pytest", *suite), stage("package", None, None))
    verdict = made_verdict(Product.INCOMPLETE, harness=Harness.CRASHED)
    changes = {"pytest": None, "pytest_s": suite[0], "stages": stages, "verdict": verdict}
    platform = platform_result("CPU", PUBLISHED[0][1:], **changes)
    assert [row.exit_code for row in stage_rows(platform)] == exit_codes
    assert table_rows([platform])[0].pytest_result == result


def test_a_repository_without_commits(published: RunResult) -> None:
    run = published.model_copy(update={"commit": None, "dirty": True})
    assert terminal(run).startswith("infini-ops: no commit, docker engine")


@pytest.mark.parametrize(("whole", "shown"), [(10.5, ["1.5 s"]), (8.0, []), (None, [])])
def test_the_overhead_of_the_engine_is_a_row(whole: float | None, shown: list[str]) -> None:
    stages = [
        StageResult(name="image", seconds=60.0, exit_code=0, in_total=False),
        StageResult(name="sync", seconds=2.0, exit_code=0, in_total=False),
        StageResult(name="install", seconds=7.0, exit_code=0, in_total=True),
    ]
    environment = {"engine": {"seconds": whole}}
    result = platform_result("CPU", PUBLISHED[0][1:], stages=stages, environment=environment)
    rows = [row for row in stage_rows(result) if row.stage == "overhead"]
    assert [row.seconds for row in rows] == shown
    assert all(row.in_total == "no" for row in rows)


LABEL = "CPU"
FAILURES = tuple(
    Failure(stage="pytest", test=test, outcome=Outcome.FAILED, message="assert 1 == 2")
    for test in ("t.py::test_a[it's 1]", *(f"t.py::test_{n}" for n in range(6)))
)


def failed_run(run: RunResult, *failures: Failure, **changes: Any) -> RunResult:
    evidence = (failed_tests(9, 0, 0, ["t.py::test_a"]),)
    verdict = Verdict(product=Product.FAILED, harness=Harness.CLEAN, evidence=evidence)
    result = platform_result(LABEL, PUBLISHED[0][1:], verdict=verdict, failures=failures, **changes)
    assert result.pytest is not None
    if result.pytest.failed == 0:
        counts = result.pytest.model_copy(update={"failed": 8, "errors": 1})
        result = result.model_copy(update={"pytest": counts})
    return run.model_copy(update={"platforms": (*run.platforms[:6], result)})


def test_the_last_lines_are_the_table_and_the_failures(published: RunResult) -> None:
    run = failed_run(published, *FAILURES)
    lines = [line.rstrip() for line in terminal(run).splitlines()]
    table = next(n for n, line in enumerate(lines) if line.startswith("Platform"))
    start = lines.index("CPU: why it did not pass")
    assert table < lines.index("  fact: 9 failed, 0 errors: t.py::test_a") < start
    assert lines[start + 1 : start + 8] == [
        "failed: 9 failed, 0 errors",
        "t.py::test_a[it's 1]",
        "  assert 1 == 2",
        f"    python -m ci rerun {run.run_id} cpu 't.py::test_a[it'\"'\"'s 1]'",
        "t.py::test_0",
        "  assert 1 == 2",
        f"    python -m ci rerun {run.run_id} cpu t.py::test_0",
    ]
    assert lines[-3:] == [
        "and 4 more failures: see results.json and pytest.jsonl",
        "A shell in the same environment:",
        f"    python -m ci shell {run.run_id} cpu",
    ]


def test_a_page_has_the_failures_below_the_table(published: RunResult) -> None:
    run = failed_run(published, *FAILURES[1:2])
    text = ResultsReport(run).markdown()
    assert (
        "\n### CPU: why it did not pass\n\n**failed**: 9 failed, 0 errors\n\n"
        "* `t.py::test_0`\n  * `assert 1 == 2`\n\n"
        f"```sh\npython -m ci rerun {run.run_id} cpu t.py::test_0\n```\n"
    ) in text
    assert text.index("### CPU: why") < text.index("* product: this project")


def test_what_ctrl_c_ended_is_not_offered_again(published: RunResult) -> None:
    stopped = on_harness.interrupted_by_caller()
    verdict = made_verdict(Product.INCOMPLETE, "no log", harness=Harness.INFRASTRUCTURE)
    verdict = verdict.model_copy(update={"evidence": (*verdict.evidence, stopped)})
    result = published.platforms[0].model_copy(update={"verdict": verdict, "failures": ()})
    text = terminal(published.model_copy(update={"platforms": (result,)}))
    assert text.endswith(f"why it did not pass\nincomplete: {stopped.text}\n")
    assert "rerun" not in text


def test_a_build_that_failed_is_repeated_or_entered(published: RunResult) -> None:
    message = "a.cc:1:1: error: no"
    failure = Failure(stage="install", test=None, outcome=Outcome.FAILED, message=message)
    lines = terminal(failed_run(published, failure)).splitlines()
    start = lines.index("stage install")
    assert lines[start + 1] == f"  {message}"
    assert lines[start + 2] == f"    python -m ci rerun {published.run_id} cpu"
    assert lines[-1] == f"    python -m ci shell {published.run_id} cpu"


def test_names_are_shown_once_and_long_reasons_are_indented(published: RunResult) -> None:
    message = "Mismatched elements: 7 / 24; " + "expected a number, got another " * 3
    parts = {"stage": "pytest", "test": "t.py::test_a", "outcome": "failed", "message": message}
    lines = terminal(failed_run(published, Failure.model_validate(parts)), width=80).splitlines()
    start = lines.index("CPU: why it did not pass")
    assert lines[start + 1 : start + 3] == ["failed: 9 failed, 0 errors", "t.py::test_a"]
    assert "\n".join(lines[start + 3 : start + 5]) == (
        "  Mismatched elements: 7 / 24; expected a number, got another expected a number,\n"
        "  got another expected a number, got another"
    )


def test_a_broken_contract_is_compared(published: RunResult) -> None:
    file, line = "tests/ops/contracts/cpu.yaml", "contract: 1 test vanished"
    parts = {"stage": "pytest", "test": None, "outcome": Outcome.FAILED, "message": line}
    run = failed_run(published, Failure.model_validate({**parts, "contract": file}))
    shown = terminal(run)
    command = f"python -m ci compare {file} {run.run_id}/cpu --fail-on regression"
    assert f"\ncontract {file}\n  {line}\n    {command}\n" in shown


@pytest.mark.parametrize(
    ("product", "harness", "is_repeated"),
    [
        (Product.FAILED, Harness.CLEAN, True),
        (Product.INCOMPLETE, Harness.TIMED_OUT, True),
        (Product.INCOMPLETE, Harness.LOST, False),
        (Product.NOT_RUN, Harness.INFRASTRUCTURE, False),
    ],
)
def test_a_platform_without_a_failure_is_repeated_if_it_began(
    published: RunResult, product: Product, harness: Harness, is_repeated: bool
) -> None:
    verdict = made_verdict(product, harness=harness)
    result = platform_result(LABEL, PUBLISHED[0][1:], verdict=verdict)
    shown = terminal(published.model_copy(update={"platforms": (result,)}))
    for command in ("rerun", "shell"):
        assert (f"\n    python -m ci {command} {published.run_id} cpu\n" in shown) is is_repeated


@pytest.mark.parametrize("test", [HOSTILE, "a\nb", "t.py::test_\x9b", "t" * LONGEST_TEST])
def test_no_command_names_a_test_that_is_shown_otherwise(published: RunResult, test: str) -> None:
    failure = Failure(stage="pytest", test=test, outcome=Outcome.FAILED, message=HOSTILE)
    run = failed_run(published, failure)
    for text in (terminal(run, width=9000), ResultsReport(run).markdown()):
        assert " rerun " not in text
        assert f"python -m ci shell {run.run_id} cpu" in text
        assert not {"\x1b", "\x07", "\x9b"} & set(text)


def test_a_platform_that_passed_has_no_section(published: RunResult) -> None:
    assert "why it did not pass" not in terminal(published) + ResultsReport(published).markdown()


@pytest.mark.parametrize("width", [80, 120, 200])
def test_headings_and_figures_are_on_one_line(published: RunResult, width: int) -> None:
    labels = [title("Cambricon", "cambricon", simulated=True), *("NVIDIA", "CPU")]
    rows = [
        result.model_copy(update={"label": label, "findings": (reported("a long note " * 12),)})
        for result, label in zip(published.platforms, labels, strict=False)
    ]
    lines = terminal(published.model_copy(update={"platforms": (*rows,)}), width).splitlines()
    [heading] = [line for line in lines if line.startswith("Platform")]
    assert re.search(r"Built +pytest Result +build/install +pytest +total", heading)
    stages = [line.split() for line in lines if line.startswith("Stage")]
    assert stages == [" ".join(STAGE_HEADINGS).split()] * len(rows)
    assert (heading.split()[-1] == "Notes") is (width == 200)
    assert sum(bool(re.search(r" \d+s +\d+s +\d+s( |$)", line)) for line in lines) == len(rows)
    assert max(map(len, lines)) <= width
    assert width == 200 or "Cambricon (simulated device): A long note" in "\n".join(lines)
