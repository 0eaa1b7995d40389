"""Checks whether the operator suite catches faults in generated code: ``nox -s mutants``.

Faults are planted in a copy of the tree, one after the other. The tree itself does not change.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from ci.errors import CiError
from ci.util.process import ProcessError
from codegen.errors import GenerationError
from tests.mutants.faults import FAULTS, PlantingError, Sources
from tests.mutants.plan import ROOT, Mutant, plan, read_sources
from tests.mutants.report import Verdict, as_markdown, write_report
from tests.mutants.sandbox import SUITE, Sandbox, failures_about, stages, work_folder
from tests.mutants.suite import SuiteOutcome

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
        faults = [fault for fault in FAULTS if fault.name in (options.only or (fault.name,))]
        mutants = plan(sources, options.seed, faults)
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


def _run(
    sources: Sources, mutants: Sequence[Mutant], options: argparse.Namespace, sandbox: Sandbox
) -> int:
    start = monotonic()
    _print_progress("building, and running the suite without a fault")
    sandbox.prepare()
    baseline = sandbox.test(SUITE, report="baseline")
    if baseline.failures:
        raise PlantingError(
            "the suite fails without a fault, so a failure with a fault would prove nothing:\n"
            + "\n".join(sorted(baseline.failures))
        )
    _print_progress(f"{len(baseline.tests)} tests in {monotonic() - start:.0f} s")
    verdicts = [_judge(sources, mutant, sandbox, baseline) for mutant in mutants]
    text = as_markdown(
        verdicts,
        seed=options.seed,
        torch=sources.library.torch_version,
        seconds=monotonic() - start,
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
    for number, stage in enumerate(stages(mutant, baseline.tests, overloads)):
        outcome = sandbox.test(*stage, report=f"{mutant.fault}-{number}")
        caught_by = failures_about(mutant, outcome.failures)
        failure = outcome.first_failure(caught_by)
        if failure is not None:
            again = sandbox.suite.reproduce(failure, f"{mutant.fault}-again")
            names = caught_by or [f"stage {failure.stage}"]
            return Verdict(mutant=mutant, caught_by=tuple(names), reproduction=again)
        if caught_by:
            return Verdict(mutant=mutant, caught_by=tuple(caught_by))
    return Verdict(mutant=mutant)


def _print_progress(text: str) -> None:
    print(f"mutants: {text}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__.partition("\n")[0], allow_abbrev=False
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
        choices=[fault.name for fault in FAULTS],
        metavar="NAME",
        help="plant this fault only; may be repeated: " + ", ".join(each.name for each in FAULTS),
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
