"""Runs of other commits, in a git worktree outside of the user's tree."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from ci.engines.select import select_engine
from ci.model.results import RunResult
from ci.plan.network import read_pip_settings
from ci.plan.planning import RunOptions
from ci.plan.project import load_project, site_file
from ci.plan.request import new_request, plan_request
from ci.plan.source import git
from ci.run.coordinator import RunCoordinator
from ci.run.progress import Progress
from ci.run.records import Records
from ci.store.folder import open_store


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A worktree of the user's repository, with the project and its configuration in it."""

    tree: Path
    source: Path
    config: Path
    site: Path
    """The user's own file: git often ignores it, so that no worktree has it."""

    def run(self, commit: str, platform: str, results: Path, options: RunOptions) -> RunResult:
        """Run a commit as ``python -m ci run`` does.

        Raises:
            UsageError, ConfigError: The commit has no valid configuration of the platform.
            InfrastructureError: The engine refused it.
            KeyboardInterrupt: The run was interrupted.
        """
        git(self.tree, "checkout", "--quiet", "--force", "--detach", commit)
        if (self.tree / ".gitmodules").exists():
            git(self.tree, "submodule", "--quiet", "update", "--init", "--recursive", "--force")
        git(self.tree, "clean", "--quiet", "-ffdx")  # folders of submodules that are gone
        environ = dict(os.environ)
        if self.site.exists():
            environ["INFINI_CI_SITE"] = str(self.site)
        project = replace(load_project(self.config, environ), pip=read_pip_settings())
        platforms = (platform,)
        request = new_request(
            project, platforms, source_folder=self.source, results=results, options=options
        )
        coordinator = RunCoordinator(
            request=request,
            plans=plan_request(project, request, results),
            connect=select_engine,
            records=Records(results / request.run_id, partial(open_store, results)),
            progress=Progress(Console(stderr=True)),
            resumed=False,
        )
        result = coordinator.execute()
        if coordinator.interrupted:
            raise KeyboardInterrupt
        return result


@contextmanager
def temporary_checkout(source: Path, config: Path) -> Iterator[Checkout]:
    """Add a worktree of the repository that has ``source``, and remove it at the end.

    Each commit has its own configuration if git tracks the file, else all have the user's.
    """
    root = Path(git(source, "rev-parse", "--show-toplevel").rstrip("\n"))
    config = config.resolve()
    is_inside = config.is_relative_to(root)
    is_tracked = is_inside and bool(git(root, "ls-files", "--", str(config)))
    with TemporaryDirectory(prefix="infini-ci-bisect-") as folder:
        tree = Path(folder).resolve() / root.name
        git(root, "worktree", "add", "--quiet", "--detach", "--no-checkout", str(tree))
        try:
            yield Checkout(
                tree=tree,
                source=tree / source.resolve().relative_to(root),
                config=tree / config.relative_to(root) if is_tracked else config,
                site=site_file(config, os.environ).resolve(),
            )
        finally:
            git(root, "worktree", "remove", "--force", "--force", str(tree), check=False)
