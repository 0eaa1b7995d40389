"""``python -m ci manifest``."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import yaml

from ci.commands.options import (
    add_choice,
    add_config,
    add_format,
    add_platforms,
    add_results,
    add_source,
    config_file,
    whole_number,
)
from ci.errors import ExitCode, UsageError
from ci.manifests import kubernetes, slurm
from ci.model.fields import MOST_SHARDS
from ci.model.trust import Trust
from ci.plan import source
from ci.plan.ci_variables import read_ci_job
from ci.plan.config import MOST_RERUNS
from ci.plan.planning import RunOptions
from ci.plan.project import Project, chosen_platforms, load_here, plan_run
from ci.plan.request import new_request, plan_request, selected_operators
from ci.run.delegated import DelegatedRun
from ci.run.estimates import with_recorded_times
from ci.run.records import Records
from ci.store.folder import open_existing_store
from ci.util.invocation import command
from ci.util.terminal import complain, show

SYSTEMS = (kubernetes.SYSTEM, slurm.SYSTEM)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Print the jobs of platforms for a system that has the machines: one Job each for"
        " Kubernetes, or a script that submits them to Slurm. For Kubernetes, a new run is opened"
        " too: its folder `kubernetes` has the files that the Jobs read, and `import` judges what"
        " they write. The settings of the system are in ci.site.yaml. With `--format json`, the"
        " Jobs are one List, which kubectl takes too; for Slurm, it has the script, and what each"
        " of its arrays requests."
    )
    add_platforms(parser, "platforms to run")
    parser.add_argument("--all", action="store_true", help="every configured platform")
    about = f"the system (default: {SYSTEMS[0]})"
    add_choice(parser, "--system", SYSTEMS, default=SYSTEMS[0], help=about)
    parser.add_argument(
        "--engine",
        metavar="ENGINE",
        help="Slurm only: the engine of `run` on a node (default: that of ci.site.yaml, else auto)",
    )
    about = "build and test only these operators, as in `run`"
    parser.add_argument("--select", metavar="OPERATORS", help=about)
    add_choice(parser, "--trust", Trust, help="how far the code is trusted, as in `run`")
    parser.add_argument(
        "--reruns",
        type=whole_number(0, MOST_RERUNS),
        metavar="N",
        help="run failed tests N more times to detect flaky ones, as in `run`",
    )
    parser.add_argument(
        "--shards",
        type=whole_number(1, MOST_SHARDS),
        metavar="N",
        help="run the tests of each platform in N processes side by side, as in `run` (default: 1)",
    )
    add_format(parser, "text", "json")
    add_source(parser)
    add_config(parser)
    add_results(parser)


def execute(options: argparse.Namespace) -> int:
    """Print the jobs; for Kubernetes, open their run."""
    project = load_here(config_file(options))
    platforms = chosen_platforms(project.config, options.platforms)
    if bool(platforms) == options.all:
        got = f"--all and {', '.join(platforms)}" if platforms else "no platform"
        configured = ", ".join(project.config.platforms)
        message = f"manifest: got {got}, expected either platforms or --all"
        raise UsageError(message, remedy=f"Configured: {configured}.")
    return PRINT[options.system](options, project, platforms or (*project.config.platforms,))


def _print_jobs(
    options: argparse.Namespace, project: Project, platforms: Sequence[str]
) -> ExitCode:
    """Open a run, write what its Jobs read, and print them."""
    if options.engine:
        message = f"--engine: got {options.engine}, expected none: in Kubernetes, pods run the jobs"
        raise UsageError(message, remedy="Leave out --engine.")
    folder = options.source or project.source
    request = new_request(
        project,
        platforms,
        source_folder=folder,
        results=options.results,
        options=_run_options(options, project, folder),
    ).model_copy(update={"system": kubernetes.SYSTEM})
    plans = plan_request(project, request, options.results)
    clusters = {it.platform: kubernetes.Cluster.of(project, it.platform) for it in plans}
    for plan in plans:
        kubernetes.check_plan(plan)
    if request.shards > 1:
        with suppress(UsageError), open_existing_store(options.results) as store:
            plans = tuple(with_recorded_times(store, request.project, plan) for plan in plans)
    jobs = [kubernetes.job_manifest(plan, clusters[plan.platform]) for plan in plans]
    records = Records.of_run(options.results, request.run_id)
    run = DelegatedRun(request=request, plans=plans, records=records)
    run.open()
    place = records.folder / kubernetes.SYSTEM
    for name in kubernetes.write_inputs(plans, place):
        complain(f"left out of the sources: {name}")
    if options.format == "json":
        show(json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs}, indent=2))
    else:
        show(yaml.safe_dump_all(jobs, sort_keys=False, explicit_start=True), end="")
    for local, remote in kubernetes.images(plans, clusters):
        complain(shlex.join(["docker", "tag", local, remote]))
        complain(shlex.join(["docker", "push", remote]))
    complain(f"Copy {place} to the volume, as folder {request.run_id}.")
    complain(f"Fetch it when the Jobs have ended, then: {command('import', request.run_id)}")
    return ExitCode.PASSED


def _run_options(options: argparse.Namespace, project: Project, folder: Path) -> RunOptions:
    return RunOptions(
        engine=options.engine or "auto",
        selected=selected_operators(project, options.select, folder),
        trust=options.trust or read_ci_job(os.environ).trust or Trust.BRANCH,
        reruns=options.reruns,
        shards=options.shards or 1,
    )


def _print_script(
    options: argparse.Namespace, project: Project, platforms: Sequence[str]
) -> ExitCode:
    """Print a script that submits jobs of the commit that the sources are at."""
    folder = (options.source or project.source).resolve()
    state = source.state(folder)
    if state.commit is None:
        message = f"manifest: {folder}: got no commit, expected a git repository with one"
        message += ", which the jobs check out"
        raise UsageError(message, remedy="Commit the sources.")
    if state.dirty:
        complain(f"{folder} has uncommitted changes, which the jobs do not get")
    asked = _run_options(options, project, folder)
    plans = plan_run(
        project,
        platforms,
        run_id=slurm.SYSTEM,
        source=folder,
        results=options.results,
        options=asked,
    )
    settings = {name: project.site.platform_settings(name).slurm for name in platforms}
    submission = slurm.Submission(
        project=project,
        commit=state.commit,
        folder=folder,
        results=options.results.absolute(),
        options=asked,
    )
    text = slurm.script(submission, plans, settings)
    if options.format == "json":
        arrays = [*map(asdict, slurm.job_arrays(plans, settings))]
        show(json.dumps({"commit": state.commit, "arrays": arrays, "script": text}, indent=2))
    else:
        show(text, end="")
    return ExitCode.PASSED


Printer = Callable[[argparse.Namespace, Project, Sequence[str]], ExitCode]
PRINT: Mapping[str, Printer] = {kubernetes.SYSTEM: _print_jobs, slurm.SYSTEM: _print_script}
