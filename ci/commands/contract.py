"""``python -m ci contract``."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ci.commands.options import add_config, add_format, add_platform, add_results, config_file
from ci.commands.reading import reading_store
from ci.errors import ConfigError, ExitCode, UsageError
from ci.facts.contract import Contract, ContractBase, load_contract
from ci.facts.difference import compare_suites
from ci.facts.recorded_contract import make_contract
from ci.gates.regression import ChangeKind
from ci.model.results import RunResult, device_kind
from ci.plan.project import chosen_platforms, config_option, load_project
from ci.report.document import output, print_document
from ci.util.files import write_atomically
from ci.util.terminal import show

OTHER_CONFIG = (
    "Pass the configuration of that run with --config, another run with --run, or use --output."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    add_platform(parser, "the platform of the contract")
    parser.add_argument("--run", metavar="RUN", help="run id (default: the latest of the platform)")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="file to write (default: <platform>.yaml in the folder `contracts` of the"
        " configuration)",
    )
    parser.add_argument(
        "--base",
        type=Path,
        metavar="FILE",
        help="write only the differences from this contract (default: the base that FILE names)",
    )
    add_config(parser)
    add_results(parser)
    add_format(parser, "table", "json")


def execute(options: argparse.Namespace) -> int:
    """Write the contract of a platform from one of its runs, and print what has changed."""
    with reading_store(options.results, run=options.run) as store:
        run = store.load(options.run, platform=options.platform)
    config = config_file(options).resolve()
    path = options.output or _contract_file(config, options.platform, run)
    before = None
    with suppress(ConfigError):  # an invalid contract is replaced
        before = load_contract(path) if path.exists() else None
    now, text = make_contract(
        run,
        options.platform,
        options.results,
        config=config_option(config),
        before=before,
        base=_choose_base(options.base, path, before),
    )
    write_atomically(path, text)
    found = before and compare_suites(before.suite, now.suite)
    needs = sorted({state.needs for state in now.suite.operators.values() if state.needs})
    if options.format == "json":
        changes = found and {kind: len(found.of(kind)) for kind in ChangeKind}
        content = {"contract": str(path), "run_id": run.run_id, "changes": changes, "needs": needs}
        show(json.dumps(content, indent=2))
        return ExitCode.PASSED
    show(f"{path}: written from run {run.run_id}. Review the changes, then commit the file.")
    if before and found:
        # Imported here: NumPy and the change-point library take 0.2 s, and --help needs neither.
        from ci.analysis.comparison import contract_side
        from ci.report.comparison_report import tests_document

        base, head = contract_side("before", before), contract_side("now", now)
        print_document(tests_document(base, head, found), output())
    if needs:
        show(f"outcomes that depend on the processor: passed only with {'; '.join(needs)}")
    return ExitCode.PASSED


def _choose_base(asked: Path | None, path: Path, before: Contract | None) -> ContractBase | None:
    """The base contract that the differences are written against."""
    name = before.base.name if before and before.base else None
    if asked:
        name = os.path.relpath(asked, path.parent)
    if name is None:
        return None
    base = load_contract(path.parent / name)
    if path.resolve() in _base_files(path.parent / name):
        raise UsageError(
            f"--base: got {asked}, which is based on the contract to write, {path}",
            remedy="Name a contract that is not based on it: --base FILE",
        )
    return ContractBase(name, base)


def _base_files(path: Path) -> Iterator[Path]:
    """The file of a contract, then the files of its bases."""
    yield path.resolve()
    if base := load_contract(path).base:
        yield from _base_files(path.parent / base.name)


def _contract_file(config: Path, name: str, run: RunResult) -> Path:
    project = load_project(config, os.environ)
    chosen_platforms(project.config, [name])  # raises with a hint at the configured ones
    if project.config.contracts is None:
        message = f"{project.path}: contracts: got nothing, expected a folder"
        remedy = "Set `contracts` in that file, or pass a file with --output."
        raise UsageError(message, remedy=remedy)
    if run.project != project.config.project:
        got = f"run {run.run_id}: got a run of project {run.project}"
        expected = f"expected {project.config.project}, the project of {project.path}"
        raise UsageError(f"{got}, {expected}", remedy=OTHER_CONFIG)
    simulated = run.platform(name).simulated
    if simulated is not project.config.platforms[name].simulated:
        of, configured = device_kind(simulated=simulated), device_kind(simulated=not simulated)
        got = f"run {run.run_id}: got a run of a {of} {name}"
        expected = f"expected a {configured} one, as {project.path} configures it"
        raise UsageError(f"{got}, {expected}", remedy=OTHER_CONFIG)
    return project.source / project.config.contracts / f"{name}.yaml"
