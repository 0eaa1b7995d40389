"""``python -m ci doctor``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from ci.commands.options import add_config, add_format, add_platforms, add_results, config_file
from ci.engines.checks import Check, Finding, carry_out, error_findings, ok
from ci.engines.device_marks import clear_device
from ci.engines.select import select_engine
from ci.errors import CiError, ExitCode, UsageError
from ci.model.plan import LEASES, EnginePlan, RunPlan
from ci.plan.planning import RunOptions
from ci.plan.project import SITE_FILE, chosen_platforms, load_here, plan_run, site_file
from ci.report.document import output
from ci.upkeep.bundle.unpack import OpenBundle, open_bundle
from ci.upkeep.doctor.network import network_checks
from ci.upkeep.doctor.output import exit_code, findings_json, print_findings
from ci.upkeep.doctor.prerequisites import cache_finding, check_git, check_results
from ci.util.terminal import show
from ci.util.text import commit_name

CONNECT_S = 25.0  # by ssh, perhaps over a slow connection, with all checks of the engine


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Check everything that runs of these platforms need, without running them: configuration,"
        " engine, disk, images, network, devices, clocks. Exits with 2 if the configuration is"
        " wrong, and with 3 if anything else is missing."
    )
    add_platforms(
        parser,
        "platforms to check (default: all configured ones)",
    )
    parser.add_argument(
        "--engine", metavar="ENGINE", help="check this engine instead of the one in the site file"
    )
    parser.add_argument(
        "--clear-device",
        metavar="UUID",
        help="check nothing: only let runs use a device again that was set aside for its failures",
    )
    parser.add_argument(
        "--bundle",
        type=Path,
        metavar="FILE",
        help="check what runs of a file need that `bundle` wrote (default: all its platforms)",
    )
    add_format(parser, "table", "json")
    add_config(parser)
    add_results(parser)


def execute(options: argparse.Namespace) -> int:
    """Check what runs need, and print each finding with its remedy."""
    if options.clear_device:
        clear_device(Path(LEASES), options.clear_device)
        show(f"{options.clear_device} may be used again")
        return ExitCode.PASSED
    findings = list(_packed_findings(options) if options.bundle else _findings(options))
    if options.format == "json":
        show(findings_json(findings), end="")
    else:
        print_findings(findings, output())
    return exit_code(findings)


def _packed_findings(options: argparse.Namespace) -> Iterator[Finding]:
    if options.config:
        message = "--bundle: cannot be combined with --config: a bundle contains it"
        raise UsageError(message)
    with open_bundle(options.bundle, options.platforms) as bundle:
        yield from _findings(options, bundle)


def _findings(options: argparse.Namespace, bundle: OpenBundle | None = None) -> Iterator[Finding]:
    try:
        project = bundle.project if bundle else load_here(config_file(options))
        network = project.network()
        configured = list(project.config.platforms)
        wanted = bundle.platforms if bundle else options.platforms or configured
        chosen = chosen_platforms(project.config, wanted)
    except CiError as error:
        yield from error_findings("configuration", error)
        return
    site = site_file(project.path, project.environ)
    files = f"{project.path} and {site}" if site.exists() else f"{project.path}, no {SITE_FILE}"
    yield ok("configuration", f"{files}: {', '.join(configured)}")
    by_engine: dict[EnginePlan, list[RunPlan]] = {}
    wrong: dict[str, tuple[CiError, list[str]]] = {}  # by error message, with the platforms
    for name in chosen:
        try:
            [plan] = plan_run(
                project,
                [name],
                run_id="doctor",
                source=bundle.source if bundle else project.source,
                results=options.results,
                options=RunOptions(engine=options.engine or "auto"),
            )
            plan = bundle.with_contents(plan) if bundle else plan
            for engine in (plan.engine, *plan.other_engines):
                by_engine.setdefault(engine, []).append(plan)
        except CiError as error:
            wrong.setdefault(str(error), (error, []))[1].append(name)
    for mistake, unplanned in wrong.values():
        yield from error_findings(f"configuration of {', '.join(unplanned)}", mistake)
    yield from carry_out(
        [
            Check("git", lambda: [bundle_finding(bundle) if bundle else check_git(project.source)]),
            Check("results", lambda: [check_results(options.results)]),
            Check("cache", lambda: [cache_finding()]),
            *network_checks(network, [plan for members in by_engine.values() for plan in members]),
            *(
                Check(f"engine {it.name}", partial(_engine_findings, it, runs), limit_s=CONNECT_S)
                for it, runs in by_engine.items()
            ),
        ]
    )


def bundle_finding(bundle: OpenBundle) -> Finding:
    """Name the sources of a bundle: a run takes the commit from it, and needs no git."""
    commit = commit_name(bundle.document.commit, dirty=bundle.document.dirty)
    return ok("sources", f"{commit}, as {bundle.path} has them; a run needs no git")


def _engine_findings(plan: EnginePlan, runs: Sequence[RunPlan]) -> Iterator[Finding]:
    """Check an engine, and what runs need there."""
    with closing(select_engine(plan)) as engine:
        yield from engine.checks(plan, runs)
