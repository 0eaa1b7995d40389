"""The command line: ``python -m ci``."""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ci.analysis.contract import Contract, load_contract
from ci.analysis.difference import difference
from ci.bundle import command as bundle_command
from ci.bundle.unpack import opened_bundle
from ci.comparison import command as comparison_command
from ci.comparison.sides import contract_side
from ci.config import MOST_RERUNS, schema_text
from ci.contract import written_contract
from ci.doctor import add_doctor
from ci.engines import select_engine
from ci.errors import CiError, ConfigError, ExitCode, UsageError
from ci.exchange import export_command, import_command
from ci.gc import add_gc
from ci.history import command as history_command
from ci.inputs import (
    CONFIG_FILE,
    REPOSITORY,
    Project,
    chosen_platforms,
    config_option,
    load_project,
    plan_run,
)
from ci.interrupts import interrupts_go_to
from ci.network import mask_credentials
from ci.pip_settings import read_pip_settings
from ci.plan import RunPlan
from ci.platforms import PLATFORMS, Platform
from ci.progress import Progress
from ci.records import Records
from ci.report import print_results, results_markdown
from ci.report.comparison import tests_text
from ci.request import RunRequest, load_request, new_request, read_request
from ci.results import RunResult, exit_code, kind, title, write_atomically
from ci.run import Run, together
from ci.store import DATABASE, default_url, open_store, store_url

if TYPE_CHECKING:
    from ci.store.store import Store

OTHER_CONFIG = "Name its configuration with --config, another run with --run, or use --output."
MAKE_ROOM = "Make room there; `python -m ci gc` removes what earlier runs have left."
FILE_WIDTH = 200  # characters of a table that is not printed on a terminal
EXIT_CODES = """exit codes:
  0    every requested platform was built and passed its tests
  1    product failure: build or tests
  2    wrong command line or configuration
  3    infrastructure failure: engine, image, network
  4    a regression, where compare or history was told to fail on one
  130  interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except CiError as error:
        print(f"error: {mask_credentials(str(error))}", file=sys.stderr)
        if error.remedy:
            print(error.remedy, file=sys.stderr)
        return error.exit_code
    except OSError as error:  # a full disk, a folder that is not ours
        print(f"error: {error}", file=sys.stderr)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            print(MAKE_ROOM, file=sys.stderr)
        return ExitCode.INFRASTRUCTURE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ci",
        description="Build and test a project on its platforms, and report the results.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add_parser = partial(commands.add_parser, allow_abbrev=False)
    _add_run(add_parser("run", help="build and test platforms"))
    bundle = add_parser("bundle", help="pack platforms into a file, to run them offline")
    bundle_command.add_options(bundle)
    _add_source(bundle)
    _add_config(bundle)
    _add_report(add_parser("report", help="show the results of a run"))
    comparison = add_parser("compare", help="show what changed between runs or platforms")
    comparison_command.add_options(comparison, _existing_store)
    _add_results(comparison)
    _add_contract(add_parser("contract", help="write what a platform's tests are expected to do"))
    history = add_parser("history", help="show what a platform's runs cost over time")
    history_command.add_options(history, _existing_store)
    _add_results(history)
    importer = add_parser("import", help="take over runs that were made elsewhere")
    import_command.add_options(importer)
    _add_results(importer)
    exporter = add_parser("export", help="write runs as tables, for pandas or DuckDB")
    export_command.add_options(exporter, _existing_store)
    _add_results(exporter)
    _add_platforms(add_parser("platforms", help="list the configured platforms"))
    doctor = add_parser("doctor", help="check what runs of platforms need")
    add_doctor(doctor)
    _add_config(doctor)
    _add_results(doctor)
    garbage = add_parser("gc", help="remove what earlier runs left, by age and size")
    add_gc(garbage)
    _add_config(garbage)
    _add_results(garbage)
    schema = add_parser("schema", help="print the JSON schema of ci.yaml")
    schema.set_defaults(command=_schema)
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_run)
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help="what to run")
    parser.add_argument("--all", action="store_true", help="run every configured platform")
    parser.add_argument(
        "--jobs",
        type=_positive,
        metavar="N",
        help="run at most N platforms at once (default: as many as their engines carry)",
    )
    parser.add_argument(
        "--engine",
        metavar="ENGINE",
        help="where to run: in a container (docker), in a fresh virtual environment on this machine"
        " (host), or on an engine of ci.site.yaml by its name; auto takes Docker where an engine"
        " answers (default: what the site says, else auto)",
    )
    _add_source(parser)
    parser.add_argument(
        "--cold", action="store_true", help="build without what the compiler cache holds"
    )
    parser.add_argument(
        "--reruns",
        type=_reruns,
        metavar="N",
        help="run failed tests N times more, as evidence of flaky ones; verdict, counts and times"
        " stay those of the first attempt (default: what the configuration says, else 0)",
    )
    _add_config(parser)
    _add_results(parser)
    parser.add_argument("--resume", metavar="RUN", help="go on with an earlier run")
    parser.add_argument(
        "--bundle",
        type=Path,
        metavar="FILE",
        help="run what `bundle` packed, by default all of it, with nothing but the file",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--dry-run", action="store_true", help="print the plan, run nothing")
    output.add_argument("--json", action="store_true", help="print results.json only")


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_report)
    parser.add_argument("run", nargs="?", metavar="RUN", help="run id (default: the latest)")
    parser.add_argument("--format", choices=("table", "markdown", "json"), default="table")
    _add_results(parser)


def _add_contract(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_contract)
    parser.add_argument("platform", metavar="PLATFORM")
    parser.add_argument("--run", metavar="RUN", help="run id (default: the latest of the platform)")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="what to write (default: <platform>.yaml in the folder that the configuration names)",
    )
    _add_config(parser)
    _add_results(parser)


def _add_platforms(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_platforms)
    _add_config(parser)
    parser.add_argument("--json", action="store_true", help="a JSON list of names")


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        help="the project (default: what --config says, else its folder)",
    )


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration (default: ci.yaml of --source or of this repository)",
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get("INFINI_CI_RESULTS") or "results"),
        help="where results are kept (default: INFINI_CI_RESULTS or results)",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got '{text}'")
    return int(text)


def _reruns(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST_RERUNS:
        raise argparse.ArgumentTypeError(f"expected a number up to {MOST_RERUNS}, got '{text}'")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    if options.bundle:
        return _run_bundle(options)
    with ThreadPoolExecutor(max_workers=1) as pool:  # meanwhile: pip takes 0.3 s to answer
        pip = pool.submit(read_pip_settings)
        project, request = _earlier_run(options) if options.resume else _new_run(options)
        project = replace(project, pip=pip.result())
    plans = plan_run(
        project,
        chosen_platforms(project.config, request.platforms),
        run_id=request.run_id,
        source=request.source,
        results=options.results / request.run_id,
        engine=None if request.engine == "auto" else request.engine,
        engines=request.engines,
        cold=request.cold,
        reruns=request.reruns,
    )
    return _begin(options, request, plans)


def _run_bundle(options: argparse.Namespace) -> int:
    if options.source or options.config:
        remedy = "Leave out --source and --config."
        raise UsageError("--bundle has sources and configuration of its own", remedy=remedy)
    earlier = _earlier(options) if options.resume else None
    wanted = earlier.platforms if earlier else options.platforms
    with opened_bundle(options.bundle, wanted) as bundle:
        project, request = (
            bundle.resumed(earlier)
            if earlier
            else bundle.request(
                results=options.results,
                engine=options.engine,
                cold=options.cold,
                reruns=options.reruns,
            )
        )
        return _begin(options, request, bundle.plans(project, request, options.results))


def _earlier(options: argparse.Namespace) -> RunRequest:
    _refuse_changes(options)
    return read_request(options.results, options.resume)


def _begin(options: argparse.Namespace, request: RunRequest, plans: Sequence[RunPlan]) -> int:
    if options.dry_run:
        return _describe(plans)
    return _execute(options, request, plans)


def _earlier_run(options: argparse.Namespace) -> tuple[Project, RunRequest]:
    _refuse_changes(options)
    request = load_request(options.results, options.resume)
    return load_project(request.config, os.environ), request


def _new_run(options: argparse.Namespace) -> tuple[Project, RunRequest]:
    config = options.config or (options.source or REPOSITORY) / CONFIG_FILE
    project = load_project(config, os.environ)
    request = new_request(
        project,
        _named(project, options),
        source_folder=options.source or project.source,
        results=options.results,
        engine=options.engine or "auto",
        cold=options.cold,
        reruns=options.reruns,
    )
    return project, request


def _refuse_changes(options: argparse.Namespace) -> None:
    asked = (options.platforms, options.all, options.engine, options.source, options.config)
    if any(asked) or options.cold or options.reruns is not None:
        message = "--resume goes on with what the run was asked for"
        remedy = "Leave out PLATFORM, --all, --engine, --source, --config, --cold and --reruns."
        raise UsageError(message, remedy=remedy)


def _named(project: Project, options: argparse.Namespace) -> list[str]:
    configured = list(project.config.platforms)
    named = chosen_platforms(project.config, options.platforms)
    if options.all and named:
        raise UsageError("run: --all and platforms are named", remedy="Leave one of them out.")
    if options.all:
        return configured
    if not named:
        remedy = f"Configured: {', '.join(configured)}. All of them: --all."
        raise UsageError("run: no platform is named", remedy=remedy)
    return [platform.name for platform in named]


def _describe(plans: Sequence[RunPlan]) -> int:
    refused: dict[str, CiError] = {}
    for plan in plans:
        try:
            with closing(select_engine(plan.engine)) as engine:
                engine.check(plan)
                print(f"# {title(plan.label, simulated=plan.simulated)}, {engine.name} engine")
                print(mask_credentials(engine.describe(plan)))
        except CiError as error:  # the others are described all the same
            refused[plan.platform] = error
    if refused:
        raise together(refused)
    return ExitCode.PASSED


def _execute(options: argparse.Namespace, request: RunRequest, plans: Sequence[RunPlan]) -> int:
    results = options.results / request.run_id
    run = Run(
        request=request,
        plans=plans,
        connect=select_engine,
        results=results,
        records=Records(results, partial(open_store, options.results)),
        progress=Progress(Console(stderr=True)),
        resumed=bool(options.resume),
        jobs=options.jobs,
    )
    result = run.execute()
    with interrupts_go_to(signal.SIG_IGN):  # the run has ended: its results take no time
        _print(result, "json" if options.json else "table")
        if not options.json:
            print(f"\nresults: {results}")
            if not all(platform.verdict.product.is_final for platform in result.platforms):
                print(f"go on with what is missing: {run.command_to_resume}")
    return ExitCode.INTERRUPTED if run.interrupted else exit_code(result.platforms)


def _print(result: RunResult, form: str) -> None:
    if form == "json":
        print(result.to_json(), end="")
    elif form == "markdown":
        print(results_markdown(result), end="")
    else:
        # Without a terminal there is no width to fit into.
        print_results(result, Console(width=None if sys.stdout.isatty() else FILE_WIDTH))


def _report(options: argparse.Namespace) -> int:
    with _existing_store(options.results) as store:
        _print(store.load(options.run), options.format)
    return ExitCode.PASSED


def _existing_store(results: Path) -> Store:
    if store_url(results) == default_url(results) and not (results / DATABASE).is_file():
        message = f"--results: there is no {DATABASE} in {results}"
        raise UsageError(message, remedy="Run a platform first: python -m ci run cpu")
    return open_store(results)


def _contract(options: argparse.Namespace) -> int:
    with _existing_store(options.results) as store:
        run = store.load(options.run, platform=options.platform)
    config = (options.config or REPOSITORY / CONFIG_FILE).resolve()
    path = options.output or _contract_file(config, options.platform, run)
    contract, text = written_contract(
        run, options.platform, options.results, config=config_option(config)
    )
    before = _contract_before(path)
    write_atomically(path, text)
    print(f"{path}: written from run {run.run_id}; look at what has changed, and commit it")
    if before is not None:
        base, head = contract_side("before", before), contract_side("now", contract)
        print(tests_text(base, head, difference(before.suite, contract.suite)), end="")
    return ExitCode.PASSED


def _contract_before(path: Path) -> Contract | None:
    try:
        return load_contract(path) if path.exists() else None
    except ConfigError:  # a reason to write it anew
        return None


def _contract_file(config: Path, name: str, run: RunResult) -> Path:
    project = load_project(config, os.environ)
    [platform] = chosen_platforms(project.config, [name])
    if project.config.contracts is None:
        message = f"{project.path}: contracts: got nothing, expected a folder"
        raise UsageError(message, remedy="Name the folder there, or a file with --output.")
    if run.project != project.config.project:
        message = (
            f"run {run.run_id} is of {run.project}, {project.path} of {project.config.project}"
        )
        raise UsageError(message, remedy=OTHER_CONFIG)
    simulated = run.platform(name).simulated
    if simulated is not project.config.platforms[name].simulated:
        of, configured = kind(simulated=simulated), kind(simulated=not simulated)
        message = f"run {run.run_id} is of a {of} {name}, {project.path} has a {configured} one"
        raise UsageError(message, remedy=OTHER_CONFIG)
    return project.source / project.config.contracts / f"{platform.name}.yaml"


def _platforms(options: argparse.Namespace) -> int:
    project = load_project(options.config or REPOSITORY / CONFIG_FILE, os.environ)
    names = list(project.config.platforms)
    if options.json:
        print(json.dumps(names))
        return ExitCode.PASSED
    for name in names:
        print(_described(project, PLATFORMS[name]))
    others = [name for name in PLATFORMS if name not in names]
    if others:
        print(f"known, and not in {project.path.name}: {', '.join(others)}")
    return ExitCode.PASSED


def _described(project: Project, platform: Platform) -> str:
    """``iluvatar: Iluvatar, torch device cuda, no base image: host engine only``."""
    wanted = project.config.platforms[platform.name]
    label = title(wanted.label or platform.label, simulated=wanted.simulated)
    bases = (project.base_image(platform.name), wanted.base_image, platform.base_image)
    host_only = "" if any(bases) else ", no base image: host engine only"
    return f"{platform.name}: {label}, torch device {platform.torch_device}{host_only}"


def _schema(_options: argparse.Namespace) -> int:
    print(schema_text(), end="")
    return ExitCode.PASSED
