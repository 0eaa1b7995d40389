"""Decide about a release: what ``gate`` and ``run --gate`` share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ci.errors import ConfigError, UsageError
from ci.model.decision import Decision
from ci.model.release import ReleasePolicy, Waiver
from ci.plan.config import Config
from ci.plan.load import load_config, load_waivers
from ci.protocol.job import Column
from ci.protocol.stage_kind import StageKind
from ci.store.folder import decision_file, make_folder
from ci.util.files import write_atomically
from ci.util.terminal import complain

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Gatekeeper:
    """The rules and the waivers of a project."""

    config: Config
    policy: ReleasePolicy
    waivers: Sequence[Waiver]
    source: Path
    """The project's folder."""

    @classmethod
    def of(cls, path: Path, source: Path | None) -> Gatekeeper | None:
        """Read a configuration and its waivers; ``None`` if it has no section ``release``.

        Raises ``ConfigError`` with all findings of one of the files.
        """
        config = load_config(path)
        if config.release is None:
            return None
        return cls(
            config=config,
            policy=config.release,
            waivers=_read_waivers(path, config.project, config.release),
            source=source or path.parent / config.source,
        )

    def decide(
        self,
        results: Path,
        names: Sequence[str],
        *,
        tag: str | None = None,
        against: str | None = None,
    ) -> Decision:
        """Decide about the named runs, of the store of these results or of files."""
        # Imported here: NumPy and the change-point library take 0.5 s, and a wrong configuration
        # needs neither.
        from ci.analysis.release import ReleaseQuestion, collect_release
        from ci.gates.release import decide
        from ci.store.pool import open_pool

        question = ReleaseQuestion(
            project=self.config.project,
            names=names,
            source=self.source,
            policy=self.policy,
            build_stages=_build_stages(self.config),
            tag=tag,
            against=against,
        )
        named = [*names, *([against] if against else [])]
        with _store_if_needed(results, named) as store, open_pool(results, store) as pool:
            facts = collect_release(pool, question)
        now = datetime.now(UTC).replace(microsecond=0)
        return decide(facts, self.policy, self.waivers, now)


def without_rules(path: Path) -> ConfigError:
    """The error of a configuration without rules of a release."""
    return ConfigError(
        f"{path}: release: got nothing, expected the rules of a release",
        remedy="Write a section `release:`: docs/validate-a-release.md",
    )


def write_decision(decision: Decision, results: Path, file: Path | None = None) -> Path:
    """Write a decision to a file, by default to that for it in the folder of results."""
    if file is None:
        make_folder(results)
        file = decision_file(results, decision)
    if not file.parent.is_dir() or file.is_dir():
        what = "a folder" if file.is_dir() else f"no folder {file.parent}"
        message = f"--output: {file}: got {what}, expected a file in a folder that exists"
        raise UsageError(message, remedy="Name another file, or make the folder.")
    write_atomically(file, decision.to_json())
    return file


def _read_waivers(config: Path, project: str, policy: ReleasePolicy) -> Sequence[Waiver]:
    if policy.waivers is None:
        return ()
    path = config.parent / policy.waivers
    found = load_waivers(path)
    if found.project != project:
        message = f"{path}: project: got '{found.project}', expected '{project}'"
        raise ConfigError(message, remedy="Name the file of this project in `release.waivers`.")
    return found.waivers


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
