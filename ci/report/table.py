"""The report of a run's results. Seconds are rounded here and nowhere before."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ci.facts.measures import ENVIRONMENT, IMAGE, Quantity, amount
from ci.model.results import BuildResult, Distribution, PlatformResult, RunResult, StageResult
from ci.model.verdicts import Grade, Harness, Product
from ci.protocol.distributions import WHEEL_SUFFIX
from ci.report.document import Block, Code, Document, Heading, Items, Report, Span, Table
from ci.report.failure_list import COLORS, failure_sections
from ci.util.invocation import command
from ci.util.text import commit_name, counted

MISSING = "-"
NOT_RUN = "not run"
NO_RESULT = "no result"  # the stage began, or may have begun
OVERHEAD = "overhead"  # the row of the engine's own time, beside the stages
# The words of a report, each explained in a line of at most 80 columns.
ALWAYS_EXPLAINED: Mapping[str, str] = {
    "product": "this project: its build and its tests",
    "harness": "what runs the product: engine, container, device, network",
}
EXPLAINED: Mapping[str, str] = {
    Product.INCOMPLETE: "the product began, but too little is recorded to judge it",
    Product.NOT_RUN: "the product was not started",
    Harness.CLEAN: "nothing went wrong in the harness",
    Harness.EXIT_AFTER_SUMMARY: "a process failed after pytest had printed its summary",
    Harness.CRASHED: "a process of the run died",
    Harness.OOM_KILLED: "a process was killed because memory ran out",
    Harness.TIMED_OUT: "a stage exceeded its time limit",
    Harness.LOST: "the run ended without a final record",
    Harness.INFRASTRUCTURE: "engine, image, device or network failed, or an interrupt",
    Grade.FACT: "recorded by a log, the engine or the kernel",
    Grade.LIKELY: "not recorded, but the best explanation of the facts",
    Grade.UNKNOWN: "no record decides it",
    OVERHEAD: "the engine's own time to create, start, follow and remove",
}
PLAIN = (Harness.CLEAN, Grade.FACT, OVERHEAD)  # words that no one has to look up


class ResultRow(NamedTuple):
    """The row of one platform; the defaults are the headings."""

    platform: str = "Platform"
    built: str = "Built"
    pytest_result: str = "`pytest` Result"
    build_install: str = "build/install"
    pytest: str = "pytest"
    total: str = "total"
    notes: str = "Notes"


class StageRow(NamedTuple):
    """The row of one stage of a platform; the defaults are the headings."""

    stage: str = "Stage"
    seconds: str = "wall"
    cpu_user: str = "CPU user"
    cpu_system: str = "CPU system"
    peak_memory: str = "peak memory"
    exit_code: str = "exit code"
    in_total: str = "in total"


SHORT_DIGEST = 12  # digits of a hash
_GLIBC = re.compile(r"manylinux_2_(\d+)_")  # the oldest glibc that such a tag of a wheel allows
HEADINGS, STAGE_HEADINGS = ResultRow(), StageRow()
SECONDS = (HEADINGS.build_install, HEADINGS.pytest, HEADINGS.total)
STAGE_NUMBERS = STAGE_HEADINGS[1:-1]


def origin(run: RunResult) -> str:
    """The commit, engine and start of a run on one line."""
    commit = commit_name(run.commit, dirty=run.dirty)
    started = f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{commit}, {run.engine} engine, {started}"


def results_table(platforms: Sequence[PlatformResult]) -> Table:
    return Table(HEADINGS, table_rows(platforms), numbers=SECONDS, below=HEADINGS.notes)


def table_rows(platforms: Sequence[PlatformResult]) -> list[ResultRow]:
    """The rows of the results table."""
    return [
        ResultRow(
            platform=result.label,
            built={True: "Yes", False: "No", None: MISSING}[result.built],
            pytest_result=_pytest_text(result),
            build_install=whole_seconds(result.build_install_s),
            pytest=whole_seconds(result.pytest_s),
            total=whole_seconds(result.total_s),
            notes=_sentence("; ".join(result.notes)),
        )
        for result in platforms
    ]


def _pytest_text(result: PlatformResult) -> str:
    pytest = result.pytest
    if pytest is None:
        return NOT_RUN if result.pytest_s is None and _not_begun(result) else NO_RESULT
    if pytest.summary is not None:
        return pytest.summary
    counts = {name: getattr(pytest, name) for name in ("failed", "passed", "skipped", "errors")}
    parts = [f"{count} {name}" for name, count in counts.items() if count]
    return f"no summary; counted so far: {', '.join(parts) or 'no test'}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" if text else ""


def whole_seconds(seconds: float | None) -> str:
    """``889s``."""
    return _figure("{:.0f}s", seconds)


def _figure(form: str, value: float | None, unit: int = 1) -> str:
    return MISSING if value is None else form.format(value / unit)


def stage_rows(result: PlatformResult) -> list[StageRow]:
    """The rows of the breakdown: the stages, then the overhead of the engine."""
    rows, not_begun, stages = [], _not_begun(result), [*result.stages]
    seconds = _overhead_seconds(result)
    if seconds is not None:
        overhead = StageResult(name=OVERHEAD, seconds=seconds, exit_code=None, in_total=False)
        stages.append(overhead)
    for stage in stages:
        exit_code = MISSING if stage.exit_code is None else str(stage.exit_code)
        if stage.seconds is None:
            exit_code = NOT_RUN if stage.name in not_begun else NO_RESULT
        rows.append(
            StageRow(
                stage=_stage_title(stage.name, result),
                seconds=_figure("{:.1f} s", stage.seconds),
                cpu_user=_figure("{:.1f} s", stage.cpu_user_s),
                cpu_system=_figure("{:.1f} s", stage.cpu_system_s),
                peak_memory=_figure("{:.0f} MiB", stage.peak_rss_bytes, 2**20),
                exit_code=exit_code,
                in_total="yes" if stage.in_total else "no",
            )
        )
    return rows


def _stage_title(name: str, result: PlatformResult) -> str:
    """The name of a stage; the host engine has no image."""
    return ENVIRONMENT if name == IMAGE and result.facts("engine").get("name") == "host" else name


def _overhead_seconds(result: PlatformResult) -> float | None:
    """The engine's time outside the stages: create, start, follow, collect, remove."""
    whole = result.facts("engine").get("seconds")
    if not isinstance(whole, int | float) or any(s.seconds is None for s in result.stages):
        return None
    inside = sum(stage.seconds or 0.0 for stage in result.stages if stage.name != IMAGE)
    # Of a resumed run, the engine followed only a part.
    return whole - inside if whole >= inside else None


def _not_begun(result: PlatformResult) -> list[str]:
    """The stages that certainly did not begin: all, or those after the first failed one."""
    names, ended = [], result.verdict.product is Product.NOT_RUN
    for stage in result.stages:
        if ended and stage.seconds is None:
            names.append(stage.name)
        ended = ended or bool(stage.exit_code)
    return names


def build_text(build: BuildResult) -> str:
    """The parts of a build on one line; the stages include all of them."""
    units = build.translation_units
    compiled = "" if units is None else f" ({counted(units, 'translation unit')})"
    wheel = None if build.wheel_bytes is None else amount(build.wheel_bytes, Quantity.WHEEL)
    parts = (
        ("configure {:.1f} s", build.configure_s),
        (f"compile {{:.1f}} s{compiled}", build.compile_s),
        ("link {:.1f} s", build.link_s),
        ("{:,} generated lines", build.generated_lines),
        ("wheel {}", wheel),
    )
    known = [form.format(value) for form, value in parts if value is not None]
    return f"build, included in the stages: {', '.join(known)}"


def distribution_text(it: Distribution) -> str:
    """A distribution on one line; the run kept it, and its record has the whole hash."""
    facts = [f"SHA-256 {it.sha256[:SHORT_DIGEST]}", amount(it.size_bytes, Quantity.WHEEL)]
    if it.is_wheel:
        tag = it.name.removesuffix(WHEEL_SUFFIX).rpartition("-")[2]
        promised = min(map(int, _GLIBC.findall(tag)), default=None)
        glibc = it.glibc if promised is None else f"2.{promised}"
        facts.append(f"for {tag} with glibc {glibc} or newer" if glibc else f"for {tag}")
        facts.append("installed" if it.installed else "not installed")
    return f"{it.name}: {', '.join([*facts, *(['made elsewhere'] if it.given else [])])}"


@dataclass(frozen=True)
class ResultsReport(Report):
    """The report of a run: its table, verdicts and failures, and the stages of each platform.

    A page begins with the table. A terminal ends with it, the verdicts below it and the failures:
    the last lines are what is on screen.
    """

    run: RunResult
    origins: Sequence[RunResult | None] = ()
    """The run of each row; empty: all are of ``run``."""
    explain: bool = False
    """Whether a terminal explains the words of the verdicts, too: a page always does."""
    wrap = True

    def document(self, *, page: bool) -> Document:
        run = self.run
        rows = zip(run.platforms, (own or run for own in self._origins()), strict=True)
        table, failures = [results_table(run.platforms)], failure_sections(rows)
        words = [f"{word}: {meaning}" for word, meaning in explained_words(run.platforms)]
        if page:
            yield Heading(1, f"{run.project}: {run.run_id}"), origin(run)
            yield table
            yield from failures
            yield [Items(words)]
            yield from (_platform_page(result) for result in run.platforms)
            return
        yield [f"{run.project}: {origin(run)}"]
        for result in run.platforms:
            yield _stages(result), *_build_lines(result), *_distribution_lines(result)
        yield table
        verdicts = [line for result in run.platforms for line in _verdict_lines(result)]
        rare = [it for it in _used_words(run.platforms) if it not in PLAIN]
        if rare and not self.explain:
            several = len({own.run_id for own in self._origins() if own}) > 1
            reference = run.commit if several and run.commit else run.run_id
            verdicts.append(f"What {', '.join(rare)} mean{'s' * (len(rare) == 1)}:")
            verdicts.append(Code(command("report", reference, "--explain")))
        yield verdicts
        if self.explain:
            yield [Items(words)]
        yield from failures

    def _origins(self) -> Sequence[RunResult | None]:
        return self.origins or [self.run] * len(self.run.platforms)

    def data(self) -> dict[str, Any]:
        return self.run.model_dump(mode="json")

    def json(self) -> str:
        return self.run.to_json()


def explained_words(platforms: Sequence[PlatformResult]) -> list[tuple[str, str]]:
    """The words that the sections of these platforms use, each with its meaning."""
    return [*ALWAYS_EXPLAINED.items(), *((it, EXPLAINED[it]) for it in _used_words(platforms))]


def _used_words(platforms: Sequence[PlatformResult]) -> list[str]:
    verdicts = [result.verdict for result in platforms]
    used: set[str] = {word for it in verdicts for word in (it.product, it.harness)}
    used |= {evidence.grade for it in verdicts for evidence in it.evidence}
    if any(_overhead_seconds(result) is not None for result in platforms):
        used.add(OVERHEAD)
    return [it for it in EXPLAINED if it in used]


def _stages(result: PlatformResult) -> Table:
    return Table(STAGE_HEADINGS, stage_rows(result), numbers=STAGE_NUMBERS, title=result.label)


def _build_lines(result: PlatformResult) -> Sequence[str]:
    return [build_text(result.build)] if result.build else []


def _distribution_lines(result: PlatformResult) -> Sequence[str]:
    return [f"file {distribution_text(it)}" for it in result.distributions]


def _verdict_lines(result: PlatformResult) -> Sequence[Block]:
    """``CPU: product passed, harness clean``, and the evidence below it."""
    verdict = result.verdict
    product = Span(verdict.product, color=COLORS[verdict.product], strong=True)
    evidence = Items([f"{it.grade}: {it.text}" for it in verdict.evidence], indent="  ")
    return [(f"{result.label}: product ", product, f", harness {verdict.harness}"), evidence]


def _platform_page(result: PlatformResult) -> Sequence[Block]:
    verdict = result.verdict
    product = Span(verdict.product, color=COLORS[verdict.product], strong=True)
    judged = ("Product: ", product, ". Harness: ", Span(verdict.harness, strong=True), ".")
    evidence = Items([f"{it.grade}: {it.text}" for it in verdict.evidence])
    build = map(_sentence, _build_lines(result))
    files = _distribution_lines(result)
    return [Heading(2, result.label), judged, evidence, _stages(result), *build, *files]
