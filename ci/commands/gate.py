"""``python -m ci gate``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ci.commands.options import (
    add_config,
    add_format,
    add_results,
    add_source,
    config_file,
)
from ci.errors import ConfigError, UsageError
from ci.model.decision import Decision
from ci.model.release import ReleasePolicy, Waiver
from ci.plan.config import Config
from ci.plan.load import load_config, load_waivers
from ci.protocol.job import Column
from ci.protocol.stage_kind import StageKind
from ci.report.decision_report import DecisionReport
from ci.store.folder import decision_file
from ci.store.rows import LATEST
from ci.util.files import write_atomically
from ci.util.terminal import complain

if TYPE_CHECKING:  # they import SQLAlchemy
    from ci.store.store import Store

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/-]{0,63}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Decide by the rules of `release:` in ci.yaml whether a release may be published. Each rule"
        " is shown with its evidence on each platform, and the decision is written to a file. The"
        " exit code is 0 for go, 4 if only regressions stand against it, and 1 for any other no-go."
        " What is missing is never a go."
    )
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        default=[LATEST],
        help="runs of the platforms: ids, commits or other git revisions; or results.json files"
        " and folders that have some, of machines whose runs are not in the store. The newest row"
        " of each platform counts (default: the latest run)",
    )
    parser.add_argument(
        "--tag",
        type=_tag,
        metavar="TAG",
        help="tag of the release. If git has it, all runs must be of its commit",
    )
    parser.add_argument(
        "--against",
        metavar="RUN",
        help="run of the last release, in one of the forms of RUN (default: the newest run of each"
        " platform at the newest tag before the commit)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="file to write the decision to (default: decision-TAG.json or decision-COMMIT.json in"
        " the folder of results)",
    )
    add_format(parser, "table", "markdown", "json")
    add_config(parser)
    add_source(parser)
    add_results(parser)


def _tag(text: str) -> str:
    """An argparse type for the name of a tag."""
    if not _TAG.fullmatch(text):
        expected = "expected up to 64 letters, digits and any of ._+/-"
        raise argparse.ArgumentTypeError(f"got '{text}', {expected}")
    return text


def execute(options: argparse.Namespace) -> int:
    """Decide, write the decision and show it."""
    path = config_file(options)
    config = load_config(path)
    policy = config.release
    if policy is None:
        raise ConfigError(
            f"{path}: release: got nothing, expected the rules of a release",
            remedy="Write a section `release:`: docs/validate-a-release.md",
        )
    waivers = _read_waivers(path, config.project, policy)
    source = options.source or (path.parent / config.source)
    decision = _decide(options, config, policy, waivers, source)
    write_atomically(options.output or decision_file(options.results, decision), decision.to_json())
    DecisionReport(decision=decision).show(options.format)
    return decision.exit_code


def _read_waivers(config: Path, project: str, policy: ReleasePolicy) -> Sequence[Waiver]:
    if policy.waivers is None:
        return ()
    path = config.parent / policy.waivers
    found = load_waivers(path)
    if found.project != project:
        raise ConfigError(f"{path}: project: got '{found.project}', expected '{project}'")
    return found.waivers


def _decide(
    options: argparse.Namespace,
    config: Config,
    policy: ReleasePolicy,
    waivers: Sequence[Waiver],
    source: Path,
) -> Decision:
    # Imported here: NumPy and the change-point library take 0.5 s, and a wrong configuration needs
    # neither.
    from ci.analysis.release import ReleaseQuestion, collect_release
    from ci.gates.release import decide
    from ci.store.pool import open_pool

    question = ReleaseQuestion(
        project=config.project,
        names=options.runs,
        source=source,
        policy=policy,
        build_stages=_build_stages(config),
        tag=options.tag,
        against=options.against,
    )
    names = [*options.runs, *([options.against] if options.against else [])]
    with (
        _store_if_needed(options.results, names) as store,
        open_pool(options.results, store) as pool,
    ):
        facts = collect_release(pool, question)
    now = datetime.now(UTC).replace(microsecond=0)
    return decide(facts, policy, waivers, now)


@contextmanager
def _store_if_needed(results: Path, names: Sequence[str]) -> Iterator[Store | None]:
    """Open the store; ``None`` if there is none, and all runs are files."""
    from ci.commands.reading import reading_store

    named = [name for name in names if not Path(name).exists()]
    with ExitStack() as stack:
        store = None
        try:
            store = stack.enter_context(reading_store(results, run=next(iter(named), None)))
        except UsageError:
            if named:
                raise
            complain(f"{results} has no store: only the named files are read")
        yield store


def _build_stages(config: Config) -> Mapping[str, Sequence[str]]:
    """The stages of each platform whose cost is that of the build."""
    return {
        platform: [
            stage.name
            for stage in config.stages
            if stage.kind is StageKind.COMMAND
            and stage.column in (None, Column.BUILD_INSTALL)
            and (stage.platforms is None or platform in stage.platforms)
        ]
        for platform in config.platforms
    }
