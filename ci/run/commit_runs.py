"""Runs of other commits, in a folder outside of the user's tree."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ci.engines.select import select_engine
from ci.model.plan import RunPlan
from ci.model.results import RunResult
from ci.plan.environment import EnvironmentChoice
from ci.plan.network import read_pip_settings
from ci.plan.planning import RunOptions
from ci.plan.project import Project, load_project, site_file
from ci.plan.request import RunRequest, new_request, plan_request
from ci.run.coordinator import RunCoordinator
from ci.run.progress import Progress
from ci.run.records import Records
from ci.store.folder import lock_run
from ci.util.checkout import check_out
from ci.util.files import remove_folder, user_cache
from ci.util.git import is_tracked, top_folder


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A folder for commits of the user's repository: the project and its configuration."""

    repository: Path
    tree: Path
    source: Path
    config: Path
    site: Path
    """The user's own file: git often ignores it, so that no commit has it."""

    def project_at(self, commit: str) -> Project:
        """Check a commit out, and load the project with this site's settings.

        Raises ``ConfigError`` if the commit has no valid configuration.
        """
        check_out(self.repository, commit, self.tree)
        environ = dict(os.environ)
        if self.site.exists():
            environ["INFINI_CI_SITE"] = str(self.site)
        return load_project(self.config, environ, read_pip_settings(os.environ))

    def run(self, commit: str, platform: str, results: Path, options: RunOptions) -> RunResult:
        """Run a commit as ``python -m ci run`` does; raises as ``plan`` and ``execute``."""
        return self.plan(commit, platform, results, options).execute()

    def plan(
        self,
        commit: str,
        platform: str,
        results: Path,
        options: RunOptions,
        environment: EnvironmentChoice | None = None,
    ) -> CommitRun:
        """Check a commit out, and plan its run; ``environment``: in place of the configured one.

        Raises ``UsageError`` or ``ConfigError`` if it has no valid configuration of the platform.
        """
        project = self.project_at(commit)
        if environment:
            # A folder outside of the sources, which is removed with them.
            project = environment.applied(project, platform, self.tree.parent)
        request = new_request(
            project, (platform,), source_folder=self.source, results=results, options=options
        )
        plans = plan_request(project, request, results)
        return CommitRun(request=request, plans=plans, results=results)


@dataclass(frozen=True, kw_only=True)
class CommitRun:
    """The planned run of the commit that is checked out."""

    request: RunRequest
    plans: Sequence[RunPlan]
    results: Path

    def execute(self) -> RunResult:
        """Run it as ``python -m ci run`` does.

        Raises:
            InfrastructureError: The engine refused it.
            KeyboardInterrupt: The run was interrupted.
        """
        coordinator = RunCoordinator(
            request=self.request,
            plans=self.plans,
            connect=select_engine,
            records=Records.of_run(self.results, self.request.run_id),
            progress=Progress(),
            resumed=False,
        )
        result = coordinator.execute()
        if coordinator.interrupted:
            raise KeyboardInterrupt
        return result


@contextmanager
def temporary_checkout(
    source: Path, config: Path, name: str, kind: str = "search"
) -> Iterator[Checkout]:
    """Make a folder for commits of the repository that has ``source``, and remove it at the end.

    Each commit has its own configuration if git tracks the file, else all have the user's. The
    folder of an interrupted search (or session: its ``kind``) of the same name is removed first.
    Raises ``UsageError`` if that one still runs.
    """
    root = top_folder(source)
    config = config.resolve()
    is_of_commit = config.is_relative_to(root) and is_tracked(config)
    folder = user_cache().resolve() / name
    folder.mkdir(parents=True, exist_ok=True)
    tree = folder / root.name
    with lock_run(folder, kind=kind):
        remove_folder(tree)
        tree.mkdir()
        try:
            yield Checkout(
                repository=root,
                tree=tree,
                source=tree / source.resolve().relative_to(root),
                config=tree / config.relative_to(root) if is_of_commit else config,
                site=site_file(config, os.environ).resolve(),
            )
        finally:
            remove_folder(folder)
