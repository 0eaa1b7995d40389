"""Runs the operator suite as on other machines: ``nox -s machines``.

The library is built once. Then this machine imitates other machines, one after the other, and runs
the suite on each. For a machine with another toolchain, the library is built again. The outcomes
must be the same as on this machine without limits. The only accepted difference is a test that
skips because the processor lacks instructions that torch names in its refusal. A machine that
cannot be imitated here is listed as not available.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from bench import budgets
from bench.rows import MeasurementError
from ci.errors import CiError
from ci.facts.pytest_log import parse_log
from ci.facts.pytest_output import read_output
from ci.model.outcomes import INSTRUCTION_SET, Outcome, PytestLog, TestOutcome
from ci.util.lines import LONGEST_REPORT, lines_of_file
from ci.util.process import ProcessError, run
from codegen.errors import GenerationError
from tools.machines.rows import SEED, Machine, NotAvailableError, Row, RunContext, rows
from tools.mutants.plan import ROOT
from tools.mutants.sandbox import JOBS, Sandbox, environment_with, work_folder

EXIT_ALIKE, EXIT_DIFFERENT, EXIT_ERROR, EXIT_INTERRUPTED = 0, 1, 2, 130
TIMEOUT_S = 3600  # of one row; all together take 25 minutes
COLUMNS = ("machine", "result", "other outcomes", "s")
ALONE = 5  # tests
MOST_SHOWN = 10  # lines: the differences on one machine mostly have one cause
NOTHING = "none"
TESTS_FAILED = 1  # pytest's exit status


@dataclass(frozen=True, kw_only=True)
class RowResult:
    """The results of the suite on one machine."""

    name: str
    summary: str
    reasoned: int = 0
    """Tests that skip because of instructions that this machine lacks."""
    differences: tuple[str, ...] = ()
    """Tests whose outcome differs from the baseline without a known reason."""
    seconds: float | None = None
    """``None``: the machine is not available."""
    is_broken: bool = False
    """The suite did not finish."""

    @property
    def others(self) -> str:
        parts = [f"{self.reasoned} for missing instructions"] if self.reasoned else []
        parts += [f"{len(self.differences)} without a reason"] if self.differences else []
        return ", ".join(parts) or NOTHING


class NoResultError(Exception):
    """The suite did not finish, or fails on this machine without limits."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all available machines agree, 1 if one differs, 2 if one has no result.

    1 also if the build exceeds a budget. A machine that ``--only`` names must be available.
    """
    options = _parser().parse_args(arguments)
    try:
        with work_folder(options.work_dir) as folder:
            sandbox = Sandbox(folder)
            costs, excesses = _build(sandbox, measured=options.budgets)
            results = _run(sandbox, options)
    except (CiError, GenerationError, MeasurementError, NoResultError, OSError) as error:
        print(f"machines: error: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("machines: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    text = "\n".join([*table(results), *costs]) + "\n"
    print(text)
    options.output_dir.mkdir(parents=True, exist_ok=True)
    (options.output_dir / "machines.md").write_text(text, encoding="utf-8")
    for excess in excesses:
        print(f"machines: error: {excess}", file=sys.stderr)
    return exit_code(results, named=options.only or (), excesses=excesses)


def exit_code(
    results: Sequence[RowResult], *, named: Sequence[str] = (), excesses: Sequence[str] = ()
) -> int:
    """Return the exit code of ``main``; ``named`` are the machines that ``--only`` names."""
    missing = {result.name for result in results if result.seconds is None}
    if any(result.is_broken for result in results) or missing.intersection(named):
        return EXIT_ERROR
    differs = excesses or any(result.differences for result in results)
    return EXIT_DIFFERENT if differs else EXIT_ALIKE


def _build(sandbox: Sandbox, *, measured: bool) -> tuple[list[str], list[str]]:
    """Build the library; return the table of its budgets, if they are measured, and the errors."""
    _print_progress("building the library")
    if not measured:
        sandbox.prepare()
        return [], []

    def build(variables: Mapping[str, str]) -> budgets.Library:
        sandbox.prepare(variables)
        environment = environment_with(sandbox.folder / "site")
        return budgets.Library(build_dir=sandbox.tree / "build", environment=environment)

    allowed = budgets.load_budgets()
    scratch = sandbox.folder / "budgets"
    scratch.mkdir()
    figures = budgets.measure(scratch, build)
    return ["", *budgets.table(figures, allowed)], list(budgets.excesses(figures, allowed))


def _run(sandbox: Sandbox, options: argparse.Namespace) -> list[RowResult]:
    here, *others = rows()
    suite = Suite(sandbox, is_fast=options.fast)
    results = [suite.measure(here)]
    for row in others:
        if row.name in options.only if options.only else row.fast or not options.fast:
            _print_progress(
                f"{results[-1].name}: {results[-1].summary}; other outcomes: {results[-1].others}"
            )
            results.append(suite.compare(row))
    return results


class Suite:
    """The suite of an installed library, with the outcomes of this machine as the baseline."""

    def __init__(self, sandbox: Sandbox, *, is_fast: bool) -> None:
        self._sandbox = sandbox
        self._is_fast = is_fast
        self._tests: tuple[str, ...] = ()  # of the baseline
        self._logs = sandbox.folder / "logs"
        self._logs.mkdir()
        self._logs.chmod(0o1777)  # an ordinary user writes there, too
        self._baseline: dict[str, TestOutcome] = {}
        self._place = RunContext(
            folder=sandbox.folder,
            site=sandbox.folder / "site",
            processor={},
            build=sandbox.build_as,
        )

    def measure(self, row: Row) -> RowResult:
        """Run on this machine without limits; raise ``NoResultError`` if the suite fails."""
        start = monotonic()
        self._tests = self._tests_of(row)
        log, summary = self._run_tests(row, row.make(self._place), self._tests)
        bad = [test for test in log.tests if test.outcome in (Outcome.FAILED, Outcome.ERROR)]
        if bad:
            failed = "\n".join(f"{test.node_id}: {test.reason}" for test in bad[:MOST_SHOWN])
            raise NoResultError(f"the suite fails on this machine without limits:\n{failed}")
        if log.processor is None:
            raise NoResultError("no test recorded the features of the processor")
        self._baseline = {test.node_id: test for test in log.tests}
        self._place = replace(self._place, processor=log.processor.facts)
        return RowResult(name=row.name, summary=summary, seconds=monotonic() - start)

    def compare(self, row: Row) -> RowResult:
        """Run as on another machine, and compare the outcomes with the baseline."""
        start = monotonic()
        try:
            machine = row.make(self._place)
            compare = self._compare_single_tests if row.alone else self._compare_suite
            tested = compare(row, machine)
        except NotAvailableError as error:
            return RowResult(name=row.name, summary=f"not available: {error}")
        except (NoResultError, ProcessError) as error:
            return RowResult(name=row.name, summary=f"no result: {error}", is_broken=True)
        return replace(tested, seconds=monotonic() - start)

    def _compare_suite(self, row: Row, machine: Machine) -> RowResult:
        tests = self._tests_of(row)
        log, summary = self._run_tests(row, machine, tests)
        for name, expected in machine.processor.items():
            if log.processor is None or log.processor.facts[name] != expected:
                raise NotAvailableError(f"the setting does not limit {name} to {expected}")
        baseline = self._baseline
        if tests != self._tests:
            # To collect takes as long as the fast tests.
            ran = {test.node_id for test in log.tests}
            names = ran if self._is_fast else self._collect(tests)
            baseline = {name: test for name, test in baseline.items() if name in names}
            log = without_unknown(log, baseline)
        reasoned, differences = compare_outcomes(log, baseline)
        return RowResult(name=row.name, summary=summary, reasoned=reasoned, differences=differences)

    def _compare_single_tests(self, row: Row, machine: Machine) -> RowResult:
        passed = sorted(n for n, test in self._baseline.items() if test.outcome is Outcome.PASSED)
        chosen = random.Random(SEED).sample(passed, ALONE)  # noqa: S311
        differences: list[str] = []
        for number, name in enumerate(chosen):
            log, _ = self._run_tests(row, machine, [name], suffix=f"-{number}")
            differences += compare_outcomes(log, {name: self._baseline[name]})[1]
        return RowResult(
            name=row.name,
            summary=f"{ALONE} tests, each in a process of its own",
            differences=tuple(differences),
        )

    def _tests_of(self, row: Row) -> tuple[str, ...]:
        return row.fast_tests if self._is_fast else row.tests

    def _collect(self, tests: Sequence[str]) -> set[str]:
        """Return the node ids of a selection on this machine."""
        pytest = [sys.executable, "-m", "pytest", "-q", "--collect-only", *tests]
        done = run(pytest, cwd=self._sandbox.tree, environment=environment_with(self._place.site))
        return {line for line in done.stdout.splitlines() if "::" in line}

    def _run_tests(
        self, row: Row, machine: Machine, tests: Sequence[str], suffix: str = ""
    ) -> tuple[PytestLog, str]:
        """Run tests on a machine; return their log, and pytest's closing summary."""
        name = "".join(it if it.isalnum() else "-" for it in row.name) + suffix
        report = self._logs / f"{name}.jsonl"
        pytest = [machine.python, "-m", "pytest", "-q", "-n", JOBS, "-p", "no:cacheprovider"]
        done = run(
            [*machine.prefix, *pytest, *machine.options, f"--report-log={report}", *tests],
            cwd=self._sandbox.tree,
            environment=_merge(environment_with(self._place.site), machine.environment),
            timeout_s=TIMEOUT_S,
            check=False,
        )
        (self._logs / f"{name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        summary = read_output(done.stdout.splitlines()).summary
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        if done.exit_code not in (0, TESTS_FAILED) or summary is None:
            raise NoResultError(f"pytest ended with {done.exit_code}: {' '.join(last)}")
        log = parse_log(lines_of_file(report, LONGEST_REPORT))
        if done.exit_code and not log.node_ids(Outcome.FAILED, Outcome.ERROR):
            raise NoResultError(f"pytest ended with {done.exit_code} although no test failed")
        return log, summary.text


def without_unknown(log: PytestLog, baseline: Mapping[str, TestOutcome]) -> PytestLog:
    """Leave out what passes or skips, and has no outcome without limits in this selection."""
    bad = (Outcome.FAILED, Outcome.ERROR)
    tests = [test for test in log.tests if test.node_id in baseline or test.outcome in bad]
    return replace(log, tests=tuple(tests))


def compare_outcomes(
    log: PytestLog, baseline: Mapping[str, TestOutcome]
) -> tuple[int, tuple[str, ...]]:
    """Return how many outcomes differ for a known reason, and a text for each other one."""
    reasoned, differences = 0, []
    found = {test.node_id: test for test in log.tests}
    for name in sorted(baseline.keys() | found.keys()):
        here, there = baseline.get(name), found.get(name)
        if _outcome(here) == _outcome(there):
            continue
        if _lacks_instructions(there, log):
            reasoned += 1
        else:
            differences.append(f"{name}: got {_outcome(there)}, expected {_outcome(here)}")
    return reasoned, tuple(differences)


def _outcome(test: TestOutcome | None) -> str:
    if test is None:
        return "not run"
    return f"{test.outcome}: {test.skip_reason}" if test.skip_reason else str(test.outcome)


def _lacks_instructions(test: TestOutcome | None, log: PytestLog) -> bool:
    """Whether a test skips because its processor lacks the features that it needs."""
    if test is None or test.skip_reason != INSTRUCTION_SET or log.processor is None:
        return False
    needs = test.operator.needs if test.operator else None
    return needs is not None and not log.processor.has(needs)


def _merge(environment: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with variables added; added paths come first."""
    paths = {
        name: f"{added[name]}{os.pathsep}{environment[name]}"
        for name in ("PYTHONPATH",)
        if name in added and name in environment
    }
    return {**environment, **added, **paths}


def table(results: Sequence[RowResult]) -> Iterator[str]:
    """Yield the results as Markdown, then the differences without a known reason."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * (len(COLUMNS) - 1) + "|---:|"
    for result in results:
        others, seconds = result.others, result.seconds
        if seconds is None:
            others = "-"
        shown = "-" if seconds is None else f"{seconds:.0f}"
        yield f"| {result.name} | {result.summary.replace('|', ' ')} | {others} | {shown} |"
    for result in results:
        if result.differences:
            yield from ("", f"{result.name}:", "")
            yield from (f"* {line}" for line in result.differences[:MOST_SHOWN])
            more = len(result.differences) - MOST_SHOWN
            yield from [f"* and {more} more"] if more > 0 else []


def _print_progress(text: str) -> None:
    print(f"machines: {text}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nox -s machines --", description=__doc__.partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument(
        "--fast",
        action="store_true",
        help="run only a few machines and the tests that depend on them: 2 minutes on 2 cores",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[row.name for row in rows()][1:],
        metavar="MACHINE",
        help="imitate only this machine; may be repeated: "
        + ", ".join([row.name for row in rows()][1:]),
    )
    parser.add_argument(
        "--budgets",
        action="store_true",
        help="also check the build against bench/budgets.yaml: a minute more",
    )
    parser.add_argument(
        "--work-dir",
        type=Path,
        metavar="DIR",
        help="build in this folder and keep it, with the logs (default: a temporary folder)",
    )
    parser.add_argument(
        "--output-dir",
        type=Path,
        default=ROOT / "results" / "machines",
        metavar="DIR",
        help="folder of machines.md (default: results/machines)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
