"""``python -m ci run``."""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from ci.commands.gating import Gatekeeper, write_decision
from ci.commands.notifying import add_run_notify, find_run_target, notify_of_run
from ci.commands.options import (
    add_choice,
    add_config,
    add_explain,
    add_format,
    add_platforms,
    add_results,
    add_source,
    config_file,
    whole_number,
)
from ci.commands.publishing import publish_run
from ci.commands.tracing import publish_trace
from ci.engines.checks import Severity, require
from ci.engines.host.prerequisites import check_python
from ci.engines.select import select_engine
from ci.errors import CiError, ExitCode, UsageError
from ci.facts.verdict import has_all_benchmarks, is_cut
from ci.gates.rules import exit_code
from ci.model.fields import MOST_SHARDS
from ci.model.plan import EngineKind, Priority, RunPlan
from ci.model.results import RunResult
from ci.model.trust import Trust
from ci.model.verdicts import Harness
from ci.plan.ci_variables import read_ci_job
from ci.plan.config import MOST_RERUNS
from ci.plan.given import read_given
from ci.plan.planning import RunOptions
from ci.plan.project import Project, chosen_platforms, load_here, plan_run
from ci.plan.request import (
    RunRequest,
    load_request,
    new_request,
    plan_request,
    read_request,
    selected_operators,
)
from ci.report.decision_report import DecisionReport
from ci.report.table import ResultsReport
from ci.run.bad_devices import set_bad_devices_aside
from ci.run.coordinator import RunCoordinator, combined_refusal
from ci.run.dry_run import plan_document, plan_text
from ci.run.estimates import with_recorded_times
from ci.run.progress import Progress
from ci.run.records import Records
from ci.store.folder import open_existing_store
from ci.upkeep.bundle.unpack import open_bundle
from ci.upkeep.doctor.prerequisites import check_git, check_results
from ci.util.interpreters import locate
from ci.util.process import handle_interrupts
from ci.util.terminal import complain, show
from ci.util.text import near_match

# What `--resume` takes from the earlier run.
OF_A_NEW_RUN = (
    *("all", "engine", "python", "ray_address", "priority", "source", "config", "cold", "trust"),
    *("wheel", "sdist", "reruns", "shards", "select", "until"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    add_platforms(parser, "platforms to run")
    parser.add_argument("--all", action="store_true", help="run every configured platform")
    _add_places(parser)
    _add_manner(parser)
    _add_extent(parser)
    add_config(parser)
    add_results(parser)
    parser.add_argument("--resume", metavar="RUN", help="continue an earlier run")
    parser.add_argument(
        "--bundle",
        type=Path,
        metavar="FILE",
        help="run from a file that `bundle` wrote, offline and without sources (default: all its"
        " platforms)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the plan of the run, as text or with `--format json`, instead of running it",
    )
    parser.add_argument(
        "--gate",
        action="store_true",
        help="after the run, decide about a release with it as `gate` does, if the configuration"
        " has a section `release:`. The exit code is that of the decision",
    )
    add_run_notify(parser)
    add_format(parser, "table", "markdown", "json")
    add_explain(parser)


def _add_places(parser: argparse.ArgumentParser) -> None:
    """Add the options that say on which machines and engines the platforms run."""
    parser.add_argument(
        "--jobs",
        type=whole_number(1),
        metavar="N",
        help="run at most N platforms at once (default: as many as their engines allow)",
    )
    parser.add_argument(
        "--engine",
        metavar="ENGINE",
        help=f"where to run: {', '.join(EngineKind)}, or the engine of this name in ci.site.yaml."
        " auto uses Docker if an engine answers, else host, a fresh virtual environment on this"
        " machine; ray uses the hosts of a Ray cluster (default: the engine of ci.site.yaml, else"
        " auto)",
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="with `--engine host`: the Python of the environment. Unless the platform's"
        " requirements bring torch, the environment sees the torch of this Python (default:"
        " `python` of ci.site.yaml, else the first known Python that has its vendor's torch, else"
        " that of this program)",
    )
    parser.add_argument(
        "--ray-address",
        metavar="HOST:PORT",
        help="head of the Ray cluster of `--engine ray` (default: the environment variable"
        " RAY_ADDRESS)",
    )
    add_choice(
        parser,
        "--priority",
        Priority,
        help="which run gets a free host of a Ray cluster first (default: release with `--trust"
        " release`, else commit)",
    )


def _add_manner(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which sources run, and how."""
    add_source(parser)
    parser.add_argument(
        "--cold", action="store_true", help="build without using the compiler cache's contents"
    )
    add_choice(
        parser,
        "--trust",
        Trust,
        help="how far the code is trusted. A run writes the compiler cache of its own level, and"
        " reads those of higher levels too (default: the level that the variables of a CI system"
        " state, else branch)",
    )
    parser.add_argument(
        "--reruns",
        type=whole_number(0, MOST_RERUNS),
        metavar="N",
        help="run failed tests N more times to detect flaky ones. Verdict, counts and times remain"
        " those of the first attempt (default: `reruns` of the configuration, else 0)",
    )
    parser.add_argument(
        "--shards",
        type=whole_number(1, MOST_SHARDS),
        metavar="N",
        help="run the tests of each platform in N processes side by side, each with devices and"
        " processors of its own. Tests are shared by their times in the newest run (default: 1)",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the containers of platforms that fail, or their work folders on the host engine:"
        " `shell` enters them, and `gc` removes them by age (default: nothing stays)",
    )


def _add_extent(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is built, installed and tested."""
    parser.add_argument(
        "--select",
        metavar="OPERATORS",
        help="build and test only these operators: names and patterns separated by commas, a"
        " predefined selection (smoke), or a file of the source (default: the environment variable"
        " that the project configures, here INFINI_OPS_TORCH_OPS, else all operators)",
    )
    parser.add_argument(
        "--until",
        metavar="STAGE",
        help="end with this stage, which may be one that is `on_request`. The tests are left out if"
        " they come later, or if it measures benchmarks (default: all stages that are not"
        " `on_request`)",
    )
    parser.add_argument(
        "--wheel",
        action="append",
        metavar="[PLATFORM=]FILE",
        help="install this wheel instead of building one; repeat it for more platforms. The tests"
        " of the sources run, in a copy without the modules that the wheel has (default: build)",
    )
    parser.add_argument(
        "--sdist",
        metavar="FILE",
        help="build this source distribution instead of the sources, and test its wheel as with"
        " --wheel (default: build the sources)",
    )


def execute(options: argparse.Namespace) -> int:
    """Run platforms from the command line, from an earlier run or from a bundle."""
    if options.bundle and (options.source or options.config):
        remedy = "Leave out --source and --config."
        message = "--bundle: cannot be combined with --source or --config: a bundle contains both"
        raise UsageError(message, remedy=remedy)
    settings = [getattr(options, name) for name in OF_A_NEW_RUN]
    is_asked = options.platforms or any(it is not None and it is not False for it in settings)
    if options.resume and is_asked:
        message = "--resume: continues the run with its original platforms and options"
        *names, last = (f"--{name.replace('_', '-')}" for name in OF_A_NEW_RUN)
        raise UsageError(message, remedy=f"Leave out PLATFORM, {', '.join(names)} and {last}.")
    if options.bundle and options.gate:
        message = "--gate: cannot be combined with --bundle: a decision needs the sources"
        raise UsageError(message, remedy="Leave out --gate, and use `gate` where the sources are.")
    if options.ray_address and options.engine != EngineKind.RAY:
        message = f"--ray-address: got --engine {options.engine or 'auto'}, expected --engine ray"
        raise UsageError(message, remedy="Add it: --engine ray")
    if options.keep and options.dry_run:
        message = "--keep: cannot be combined with --dry-run: a dry run creates nothing"
        raise UsageError(message, remedy="Leave out --keep or --dry-run.")
    if options.dry_run and options.format == "markdown":
        message = "--format: got markdown, expected table or json with --dry-run"
        raise UsageError(message, remedy="Leave out --format or --dry-run.")
    find_run_target(options)  # a wrong one is found before the run
    if options.bundle:
        return _run_bundle(options)
    if options.resume:
        request = _resumed(load_request(options.results, options.resume), options)
        project = load_here(request.config)
    else:
        project, request = _new_run(options)
    return _execute_plans(options, request, plan_request(project, request, options.results))


def _resumed(request: RunRequest, options: argparse.Namespace) -> RunRequest:
    """Return the request of an earlier run, which may now keep what fails."""
    return request.model_copy(update={"keep": request.keep or options.keep})


def _run_bundle(options: argparse.Namespace) -> int:
    earlier = read_request(options.results, options.resume) if options.resume else None
    wanted, asked = earlier.platforms if earlier else options.platforms, _run_options(options)
    with open_bundle(options.bundle, wanted) as bundle:
        if earlier:
            request = _resumed(bundle.resume(earlier), options)
        else:
            _check_last_stage(bundle.project, options.until)
            request = bundle.request(options.results, asked, options.select)
        return _execute_plans(options, request, bundle.plans(request, options.results))


def _new_run(options: argparse.Namespace) -> tuple[Project, RunRequest]:
    if options.python:
        named = check_python(options.python)
        if named.level is Severity.PROBLEM:
            raise UsageError(f"--python: {named.found}", remedy=named.remedy)
    project = load_here(config_file(options))
    platforms, source = _choose_platforms(project, options), options.source or project.source
    _check_last_stage(project, options.until)
    if not options.dry_run:
        _refuse_unfit_machine(options, project, platforms, source)
    selected = selected_operators(project, options.select, source)
    request = new_request(
        project,
        platforms,
        source_folder=source,
        results=options.results,
        options=_run_options(options, selected),
    )
    return project, request


def _run_options(options: argparse.Namespace, selected: str | None = None) -> RunOptions:
    trust = Trust(options.trust or read_ci_job(os.environ).trust or Trust.BRANCH)
    usual = Priority.RELEASE if trust is Trust.RELEASE else Priority.COMMIT
    return RunOptions(
        engine=options.engine or "auto",
        ray_address=options.ray_address,
        priority=options.priority or usual,
        python=options.python and locate(options.python),
        cold=options.cold,
        trust=trust,
        reruns=options.reruns,
        shards=options.shards or 1,
        selected=selected,
        keep=options.keep,
        last_stage=options.until,
        given=read_given(options.wheel or (), options.sdist),
    )


def _check_last_stage(project: Project, name: str | None) -> None:
    known = [stage.name for stage in project.config.stages]
    if name is not None and name not in known:
        message = f"--until: got '{name}', expected a stage of {project.path}"
        raise UsageError(message, remedy=f"Stages: {', '.join(known)}{near_match(name, known)}.")


def _warn_of_trust(asked: str | None) -> None:
    """Report that ``--trust`` asks for a higher level than the CI system's variables state."""
    job = read_ci_job(os.environ)
    if asked and job.trust and Trust(asked) in job.trust.higher:
        what = f"--trust {asked}: the variables of {job.system} state the level {job.trust}"
        complain(f"{what}; the option decides, so this run writes the {asked} cache")


def _refuse_unfit_machine(
    options: argparse.Namespace, project: Project, platforms: Sequence[str], source: Path
) -> None:
    """Raise if no result could be produced or written here, naming all else that is missing."""
    findings = [check_git(source), check_results(options.results)]
    if all(found.level is not Severity.PROBLEM or found.configuration for found in findings):
        return  # each platform reports its own missing prerequisites and stops no other
    plans = plan_run(
        project,
        platforms,
        run_id="preflight",
        source=source,
        results=options.results,
        options=_run_options(options),
    )
    for engine, plan in {plan.engine: plan for plan in plans}.items():
        with suppress(CiError), closing(select_engine(engine)) as selected:
            findings += selected.prerequisites(plan)
    require("a run", dict.fromkeys(findings))


def _choose_platforms(project: Project, options: argparse.Namespace) -> tuple[str, ...]:
    configured = tuple(project.config.platforms)
    named = chosen_platforms(project.config, options.platforms)
    if options.all and named:
        message = f"run: got --all and {', '.join(named)}, expected one of the two"
        raise UsageError(message, remedy="Leave out --all or the platforms.")
    if not (options.all or named):
        remedy = f"Configured: {', '.join(configured)}. To run all of them: --all."
        raise UsageError("run: got no platform, expected at least one", remedy=remedy)
    return named or configured


def _execute_plans(
    options: argparse.Namespace, request: RunRequest, plans: Sequence[RunPlan]
) -> int:
    _warn_of_trust(options.trust)
    if options.dry_run:
        return _print_plans(plans, options.format)
    folder = options.results / request.run_id
    if any(plan.shards > 1 for plan in plans):
        with suppress(UsageError), open_existing_store(options.results) as store:
            plans = [with_recorded_times(store, request.project, plan) for plan in plans]
    # Its errors are found before the run.
    keeper = Gatekeeper.of(request.config, request.source) if options.gate else None
    coordinator = RunCoordinator(
        request=request,
        plans=plans,
        connect=select_engine,
        records=Records.of_run(options.results, request.run_id),
        progress=Progress(),
        resumed=bool(options.resume),
        jobs=options.jobs,
    )
    result = coordinator.execute()
    with handle_interrupts(signal.SIG_IGN):  # the run has ended, and printing is quick
        ResultsReport(result, explain=options.explain).show(options.format)
        if options.format == "table":
            show(f"\nresults: {folder}")
            for command in coordinator.install:
                show(f"install what is missing: {command}")
            verdicts = [platform.verdict for platform in result.platforms]
            open_ = {verdict.harness for verdict in verdicts if not verdict.product.is_final}
            if open_ - {Harness.CLEAN}:  # with the same sources, a clean harness repeats its result
                command = coordinator.command_to_resume
                show(f"to continue this run with unchanged sources and configuration: {command}")
        set_bad_devices_aside(options.results, request.project, plans)
    decided = None
    try:
        if options.gate:
            decided = _decide(keeper, options, request, interrupted=coordinator.interrupted)
    finally:
        publish_run(options.results, request.source, result, os.environ)
        publish_trace(result, os.environ)
    if coordinator.interrupted:
        return ExitCode.INTERRUPTED
    code = _exit_code(request, result)
    target = find_run_target(options)
    if target and code is not ExitCode.PASSED:
        notify_of_run(target, result, folder)
    return code if decided is None else decided


def _decide(
    keeper: Gatekeeper | None,
    options: argparse.Namespace,
    request: RunRequest,
    *,
    interrupted: bool,
) -> int | None:
    """Decide about a release with a run, and show the decision below its table.

    Return the exit code of the decision; ``None``: there is none, and a message says why.
    """
    if keeper is None:
        what = f"{request.config} has no section `release:` (docs/validate-a-release.md)"
        complain(f"no decision about a release: {what}")
        return None
    if interrupted:
        complain("no decision about a release: the run was interrupted")
        return None
    decision = keeper.decide(options.results, [request.run_id])
    file = write_decision(decision, options.results)
    if options.format == "json":  # it is one document
        complain(f"release: {decision.verdict.shown}, decision: {file}")
    else:
        show("")
        DecisionReport(decision=decision).show(options.format)
        if options.format == "table":
            show(f"decision: {file}")
    return decision.exit_code


def _exit_code(request: RunRequest, result: RunResult) -> ExitCode:
    """Return the exit code; platforms that ended with the requested stage have passed."""
    verdicts = {it.platform: it.verdict for it in result.platforms if request.last_stage}
    ended = {
        name
        for name, verdict in verdicts.items()
        if is_cut(verdict) and has_all_benchmarks(verdict) and verdict.harness is Harness.CLEAN
    }
    others = [it for it in result.platforms if it.platform not in ended]
    return exit_code(others) if others or not ended else ExitCode.PASSED


def _print_plans(plans: Sequence[RunPlan], form: str) -> int:
    documents, refused = [], dict[str, CiError]()
    for plan in plans:
        try:
            with closing(select_engine(plan.engine)) as engine:
                engine.check(plan)
                documents.append(plan_document(plan, engine))
        except CiError as error:  # the others are still shown
            refused[plan.platform] = error
    if form == "json":
        show(json.dumps({"platforms": documents}, indent=2))
    else:
        show("\n\n".join(map(plan_text, documents)))
    if refused:
        raise combined_refusal(refused)
    return ExitCode.PASSED
