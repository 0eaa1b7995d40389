"""A session: the environment of an earlier run again, for a shell or for its tests.

The sources are those of the run: the folder itself while it is unchanged, else the recorded commit
in a worktree outside of the user's tree. The stages before the tests run again, with the compiler
cache of the run.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from ci.engines import Engine, Observer
from ci.engines.select import select_engine
from ci.errors import ExitCode, InfrastructureError, UsageError
from ci.model.plan import RunPlan
from ci.model.results import ImageFacts, PlatformResult
from ci.plan import source
from ci.plan.network import read_pip_settings
from ci.plan.planning import RunOptions
from ci.plan.project import Project, load_project, plan_run
from ci.plan.request import RunRequest, is_configuration_changed, source_changes
from ci.plan.session import SHELL, rerun_plan, shell_plan
from ci.run.commit_runs import temporary_checkout
from ci.run.platform import PlatformOutcome, judge_platform, prepare_image
from ci.run.progress import Progress
from ci.store.folder import lock_run
from ci.util.process import handle_interrupts
from ci.util.text import commit_name

SESSION = "session"  # the kind of what is locked
Adaptation = Callable[..., RunPlan]  # of a plan, with its folder of results, to a session


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A platform of an earlier run."""

    request: RunRequest
    result: PlatformResult
    results: Path
    """The folder of all runs."""

    @property
    def options(self) -> RunOptions:
        """The options of the run that the environment depends on, with a warm compiler cache."""
        kept = {name: getattr(self.request, name) for name in RunOptions.model_fields}
        return RunOptions.model_validate({**kept, "cold": False, "reruns": 0})


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The sources of a run, and the project that they are."""

    folder: Path
    project: Project
    notes: tuple[str, ...] = ()
    """How they differ from those of the run."""


@contextmanager
def recorded_sources(recorded: Recorded) -> Iterator[Sources]:
    """Yield the sources of a run, which may be in a temporary folder.

    Raises ``UsageError`` if they have changed and no commit has them.
    """
    request = recorded.request
    if request.bundle is not None:
        message = f"run {request.run_id} used the bundle {request.bundle}, expected a source folder"
        raise UsageError(message, remedy="Run the bundle again: it has its sources and images.")
    changes = _changes(recorded)
    if changes is None:
        project = replace(load_project(request.config, os.environ), pip=read_pip_settings())
        yield Sources(folder=request.source, project=project)
        return
    _check_commit(request, changes)
    name = f"{SESSION}-{request.run_id}-{recorded.result.platform}"
    with temporary_checkout(request.source, request.config, name, SESSION) as checkout:
        project = checkout.project_at(str(request.commit))
        commit = commit_name(request.commit)
        notes = [f"the sources are those of {commit}, in a temporary folder: {changes}"]
        if request.dirty:
            what = "the run had uncommitted changes, which are not recorded"
            notes.append(f"{what}: this is {commit} without them")
        if checkout.config == request.config and is_configuration_changed(request):
            notes.append(f"{request.config} has changed since the run, and git does not have it")
        yield Sources(folder=checkout.source, project=project, notes=tuple(notes))


def _changes(recorded: Recorded) -> str | None:
    """Return why the folder no longer has the sources of the run; ``None``: it has them."""
    request = recorded.request
    if not request.source.is_dir():
        return f"{request.source} no longer exists"
    if is_configuration_changed(request):
        return f"{request.config} has changed since the run began"
    return source_changes(request, recorded.results)


def _check_commit(request: RunRequest, changes: str) -> None:
    """Raise ``UsageError`` if the commit of a run cannot be checked out."""
    folder, run = request.source, request.run_id
    if request.commit is None:
        message = f"the sources of run {run} are gone: {changes}, and the run had no commit"
        raise UsageError(message, remedy="Undo the changes, or start a new run.")
    if not folder.is_dir():
        remedy = "Clone the project there again, or start a new run elsewhere."
        raise UsageError(f"the sources of run {run} are gone: {changes}", remedy=remedy)
    found = source.git(folder, "cat-file", "-t", request.commit, check=False).strip()
    if found != "commit":
        commit = commit_name(request.commit)
        message = f"the clone {folder} has no {commit}, the sources of run {run}"
        remedy = f"Fetch it: git -C {folder} fetch origin {request.commit}"
        raise UsageError(message, remedy=remedy)


@dataclass(kw_only=True)
class Session:
    """A platform of an earlier run, carried out again up to its tests."""

    recorded: Recorded
    progress: Progress
    interactive: bool = False
    """Whether a shell has a terminal."""

    def shell(self) -> int:
        """Open a shell, and return its exit code."""
        with self._prepared(shell_plan) as (engine, plan, image):
            observer = ShellObserver(session=self, engine=engine, plan=plan)
            facts = engine.execute(plan, image, observer)
        if facts.interrupted:
            return ExitCode.INTERRUPTED
        if observer.code is None:
            reason = observer.reason or "the environment could not be made"
            raise InfrastructureError(f"no shell was opened: {reason}")
        return observer.code

    def rerun(self, test: str | None) -> tuple[PlatformOutcome, str]:
        """Run one test, or all; return the outcome, and what the last stage that ran printed."""
        with self._prepared(partial(rerun_plan, test=test)) as (engine, plan, image):
            facts = engine.execute(plan, image, self._observer(plan))
            outcome = judge_platform(plan, facts)
            logs = [plan.results / f"{stage.name}.log" for stage in plan.stages]
            last = next((log for log in reversed(logs) if log.is_file()), None)
            printed = last.read_text(encoding="utf-8", errors="replace") if last else ""
        self.progress.show_result(plan.title, outcome.result)
        return outcome, printed

    def _observer(self, plan: RunPlan) -> Observer:
        return PlatformObserver(progress=self.progress, label=plan.title)

    @contextmanager
    def _prepared(self, adapt: Adaptation) -> Iterator[tuple[Engine, RunPlan, ImageFacts]]:
        """Yield the engine, the plan and the image of the session, in a folder of its own."""
        with (
            handle_interrupts(signal.default_int_handler),
            recorded_sources(self.recorded) as sources,
            self._plan(sources, adapt) as plan,
            closing(select_engine(plan.engine)) as engine,
            self.progress,
        ):
            for note in sources.notes:
                self.progress.show_notice(note)
            engine.check(plan)
            yield engine, plan, self._image(engine, plan)

    @contextmanager
    def _plan(self, sources: Sources, adapt: Adaptation) -> Iterator[RunPlan]:
        platform = self.recorded.result.platform
        run_id = f"{self.recorded.request.run_id}-{SESSION}-{secrets.token_hex(2)}"
        # The name of a work folder: `gc` finds it if this process dies.
        folder = Path(tempfile.mkdtemp(prefix=f"infini-ci-{run_id}-{platform}-"))
        try:
            with lock_run(folder, kind=SESSION):
                [plan] = plan_run(
                    sources.project,
                    (platform,),
                    run_id=run_id,
                    source=sources.folder,
                    results=folder,
                    options=self.recorded.options,
                )
                yield adapt(plan, results=folder / platform)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _image(self, engine: Engine, plan: RunPlan) -> ImageFacts:
        """Return the recorded image, or one that is made as a run makes it."""
        digest = self.recorded.result.facts("engine", "image").get("digest")
        if isinstance(digest, str):
            if found := engine.find_image(plan, digest):
                return found
            text = f"the engine no longer has the image of the run, {digest}: it is made again"
            self.progress.show_notice(text)
        return prepare_image(engine, plan, self._observer(plan))


@dataclass(kw_only=True)
class PlatformObserver:
    """Shows the events of one platform."""

    progress: Progress
    label: str

    def event(self, event: Mapping[str, object]) -> None:
        self.progress.event(self.label, event)


@dataclass(kw_only=True)
class ShellObserver:
    """Opens the shell when its stage has started."""

    session: Session
    engine: Engine
    plan: RunPlan
    code: int | None = None
    """The exit code of the shell; ``None``: it was not opened."""
    reason: str | None = None

    def event(self, event: Mapping[str, object]) -> None:
        """Show an event, and block at the one that the shell's stage has started."""
        is_shell = event.get("stage") == SHELL
        match event.get("event"):
            case "stage_started" if is_shell:
                self.session.progress.__exit__()
                self.code = self.engine.enter(self.plan, interactive=self.session.interactive)
            case "stage_skipped" if is_shell:
                self.reason = str(event["reason"])
            case _ if not is_shell:
                self.session.progress.event(self.plan.title, event)


def new_session(recorded: Recorded) -> Session:
    """Return a session that shows its progress on the standard error."""
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    progress = Progress(Console(stderr=True))
    return Session(recorded=recorded, progress=progress, interactive=interactive)
