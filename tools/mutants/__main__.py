"""Checks whether the operator suite catches faults in generated code: ``nox -s mutants``.

Faults are planted in a copy of the tree, one after the other. The tree itself does not change.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from ci.errors import CiError, UsageError
from ci.util.process import ProcessError
from codegen.errors import GenerationError
from tools.mutants.draw import draw
from tools.mutants.drawn import RECORD, Candidate, load_draw
from tools.mutants.faults import Fault, PlantingError, Sources
from tools.mutants.plan import ROOT, Mutant, all_faults, plan, read_sources
from tools.mutants.report import TIME_LIMIT, Verdict, as_markdown, write_report
from tools.mutants.sandbox import Sandbox, UnchangedLibraryError, work_folder
from tools.mutants.stages import STOP, SUITE, beyond_suite, failures_about, stages
from tools.mutants.suite import SuiteOutcome

DEFAULT_SEED = 1
EXIT_CAUGHT, EXIT_SURVIVED, EXIT_ERROR, EXIT_INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Check all mutants.

    Returns 0 if all are caught and their failures can be reproduced, 1 if not, 2 if one could not
    be tried.
    """
    options = _parser().parse_args(arguments)
    try:
        sources = read_sources()
        if options.draw is not None:
            with work_folder(options.work_dir) as folder:
                return _draw(sources, options, Sandbox(folder))
        mutants = plan(sources, options.seed, _chosen_faults(options.only))
        if options.list:
            for mutant in mutants:
                print(f"{mutant.fault}: {mutant.site.subject}: {mutant.site.what}")
            return EXIT_CAUGHT
        with work_folder(options.work_dir) as folder:
            return _run(sources, mutants, options, Sandbox(folder))
    except (CiError, GenerationError, PlantingError, OSError) as error:
        print(f"mutants: error: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("mutants: interrupted; nothing was written", file=sys.stderr)
        return EXIT_INTERRUPTED


def _chosen_faults(names: Sequence[str] | None) -> list[Fault]:
    faults = all_faults()
    if unknown := sorted({*(names or ())} - {fault.name for fault in faults}):
        known = ", ".join(fault.name for fault in faults)
        raise UsageError(f"--only: got {', '.join(unknown)}, expected some of {known}")
    return [fault for fault in faults if fault.name in (names or (fault.name,))]


def _draw(sources: Sources, options: argparse.Namespace, sandbox: Sandbox) -> int:
    """Draw mutants, and write them down; those that are there already stay."""
    recorded = load_draw() if RECORD.exists() else None
    seed: int = options.draw
    _print_progress("building without a fault")
    sandbox.prepare()

    def check(candidate: Candidate) -> str | None:
        [mutant] = plan(sources, seed, [candidate.fault(candidate.layer)])
        start = monotonic()
        reason = None
        try:
            with sandbox.planted(mutant):
                pass
        except UnchangedLibraryError:
            reason = "the library stays the same"
        except ProcessError:
            reason = "does not build"
        seconds = f"{monotonic() - start:.0f} s"
        _print_progress(f"{candidate.path}: {candidate.what}: {reason or 'drawn'} ({seconds})")
        return reason

    done = draw(sources.root, seed, recorded, check)
    done.write()
    print(f"{RECORD.relative_to(ROOT)}: {len(done.mutants)} mutants, seed {seed}")
    return EXIT_CAUGHT


def _run(
    sources: Sources, mutants: Sequence[Mutant], options: argparse.Namespace, sandbox: Sandbox
) -> int:
    start = monotonic()
    _print_progress("building, and running the suite without a fault")
    sandbox.prepare()
    baseline = sandbox.test(SUITE, report="baseline")
    beyond = beyond_suite(mutants)
    failures = {*baseline.failures}
    if beyond:
        failures.update(sandbox.test(*beyond, report="beyond").failures)
    if failures:
        raise PlantingError(
            "the tests fail without a fault, so a failure with a fault would prove nothing:\n"
            + "\n".join(sorted(failures))
        )
    _print_progress(f"{len(baseline.tests)} tests in {monotonic() - start:.0f} s")
    verdicts = [
        Verdict(mutant=mutant) if mutant.equivalent else _judge(sources, mutant, sandbox, baseline)
        for mutant in mutants
    ]
    text = as_markdown(
        verdicts,
        seed=options.seed,
        torch=sources.library.torch_version,
        seconds=monotonic() - start,
        cpu_seconds=sum(os.times()[2:4]),  # of all processes that it started
    )
    print(text)
    print(write_report(text, options.output_dir))
    if any(verdict.error for verdict in verdicts):
        return EXIT_ERROR
    return EXIT_SURVIVED if any(verdict.problem for verdict in verdicts) else EXIT_CAUGHT


def _judge(sources: Sources, mutant: Mutant, sandbox: Sandbox, baseline: SuiteOutcome) -> Verdict:
    start = monotonic()
    verdict = Verdict(mutant=mutant)
    try:
        with sandbox.planted(mutant):
            verdict = _tested(sources, mutant, sandbox, baseline)
    except (PlantingError, ProcessError) as problem:
        verdict = replace(verdict, error=str(problem))
    verdict = replace(verdict, seconds=monotonic() - start)
    _print_progress(
        f"{mutant.fault}: {mutant.site.subject}: {verdict.summary} ({verdict.seconds:.0f} s)"
    )
    return verdict


def _tested(sources: Sources, mutant: Mutant, sandbox: Sandbox, baseline: SuiteOutcome) -> Verdict:
    """Return the failed tests about a planted mutant, from the first stage that has any.

    The command that a user sees below the first of them must fail, too.
    """
    overloads = frozenset(each.schema.full_name for each in sources.library.overloads)
    differs = sandbox.library_differs()
    order = stages(mutant, baseline.tests, overloads, library_differs=differs)
    for number, stage in enumerate(order):
        report = f"{mutant.fault}-{number}"
        outcome = sandbox.test(*STOP, *stage, report=report)
        caught_by = failures_about(mutant, outcome.failures)
        if outcome.failures and not caught_by:  # the first failure was about something else
            outcome = sandbox.test(*stage, report=report)
            caught_by = failures_about(mutant, outcome.failures)
        in_suite = all(test.startswith(SUITE) for test in stage)
        verdict = Verdict(mutant=mutant, caught_by=tuple(caught_by), in_suite=in_suite)
        failure = outcome.first_failure(caught_by)
        if in_suite and failure is not None:
            names = verdict.caught_by or (f"stage {failure.stage}",)
            again = sandbox.suite.reproduce(failure, f"{mutant.fault}-again")
            return replace(verdict, caught_by=names, reproduction=again)
        if outcome.ended_by_limit:
            return replace(verdict, caught_by=(*caught_by, TIME_LIMIT), in_suite=False)
        if caught_by:
            return verdict
    return Verdict(mutant=mutant)


def _print_progress(text: str) -> None:
    print(f"mutants: {text}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants", description=__doc__.partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=DEFAULT_SEED,
        metavar="N",
        help="chooses the operators that get the faults (default: %(default)s)",
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="plant this fault only; may be repeated (`--list` prints the names)",
    )
    parser.add_argument(
        "--draw",
        type=int,
        metavar="SEED",
        help="draw mutants with universalmutator, and rewrite drawn.yaml; with the seed of that "
        "file, replace only those whose lines are gone",
    )
    parser.add_argument("--list", action="store_true", help="print the plan; run nothing")
    parser.add_argument(
        "--work-dir",
        type=Path,
        metavar="DIR",
        help="build in this folder and keep it, with the logs (default: a temporary folder)",
    )
    parser.add_argument(
        "--output-dir",
        type=Path,
        default=ROOT / "results" / "mutants",
        metavar="DIR",
        help="folder of mutants.md (default: results/mutants)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
