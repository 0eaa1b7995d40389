"""A session: the environment of an earlier run again, for a shell or for its tests.

A shell enters what the run has kept, if it still exists. Otherwise the environment is recreated.
The sources are those of the run: the folder itself while it is unchanged, else the recorded commit
in a folder outside of the user's tree. The stages before the tests run again, with the compiler
cache of the run.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ci.engines import Engine, Observer
from ci.engines.select import select_engine
from ci.errors import ExitCode, InfrastructureError, UsageError
from ci.facts.result_files import ResultFiles
from ci.model.execution import ImageFacts
from ci.model.plan import RunPlan
from ci.model.results import PlatformResult
from ci.plan.planning import RunOptions
from ci.plan.project import Project, load_here, plan_run
from ci.plan.request import RunRequest, is_configuration_changed, source_changes
from ci.plan.session import SHELL, kept_plan, rerun_plan, shell_plan
from ci.protocol.events import Event, StageSkipped, StageStarted
from ci.protocol.stable_names import TestNames
from ci.run.commit_runs import temporary_checkout
from ci.run.platform import PlatformOutcome, judge_platform, prepare_image
from ci.run.progress import PlatformObserver, Progress
from ci.store.folder import lock_run
from ci.util.git import git
from ci.util.process import handle_interrupts
from ci.util.text import commit_name

SESSION = "session"  # the kind of what is locked
Adaptation = Callable[..., RunPlan]  # of a plan, with its folder of results, to a session
BundlePlans = Callable[[RunRequest, Path], Sequence[RunPlan]]


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A platform of an earlier run."""

    request: RunRequest
    result: PlatformResult
    results: Path
    """The folder of all runs."""
    bundled: BundlePlans | None = None
    """Plans the run again, if it used a bundle: with the sources and images in it."""

    def plan(self, sources: Sources, run_id: str, results: Path) -> RunPlan:
        """Plan the platform again, as ``run_id`` with its results in a folder of ``results``."""
        platforms = (self.result.platform,)
        if self.bundled is not None:
            changes = {**self.options.model_dump(), "run_id": run_id, "platforms": platforms}
            [plan] = self.bundled(self.request.model_copy(update=changes), results)
            return plan
        [plan] = plan_run(
            sources.project,
            platforms,
            run_id=run_id,
            source=sources.folder,
            results=results,
            options=self.options,
        )
        return plan

    @property
    def options(self) -> RunOptions:
        """The options of the run that the environment depends on, with a warm compiler cache."""
        kept = {name: getattr(self.request, name) for name in RunOptions.model_fields}
        own = {"cold": False, "reruns": 0, "keep": False, "shards": 1}
        return RunOptions.model_validate({**kept, **own})


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The sources of a run, and the project that they are."""

    folder: Path
    project: Project
    notes: tuple[str, ...] = ()
    """How they differ from those of the run."""


@contextmanager
def recorded_sources(recorded: Recorded, *, only_configuration: bool = False) -> Iterator[Sources]:
    """Yield the sources of a run, which may be in a temporary folder.

    ``only_configuration``: of these sources, only the configuration must be that of the run.
    Raises ``UsageError`` if they have changed and no commit has them.
    """
    request = recorded.request
    changes = _changes(recorded, only_configuration=only_configuration)
    if changes is None:
        project = load_here(request.config)
        yield Sources(folder=request.source, project=project)
        return
    if request.bundle is not None:
        message = f"{request.bundle} is not the bundle of run {request.run_id}: {changes}"
        raise UsageError(message, remedy="Copy the bundle that the run used to that place.")
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


def _changes(recorded: Recorded, *, only_configuration: bool) -> str | None:
    """Return why the folder no longer has the sources of the run; ``None``: it has them."""
    request = recorded.request
    if not request.source.is_dir():
        return f"{request.source} no longer exists"
    if is_configuration_changed(request):
        return f"{request.config} has changed since the run began"
    return None if only_configuration else source_changes(request, recorded.results)


def _check_commit(request: RunRequest, changes: str) -> None:
    """Raise ``UsageError`` if the commit of a run cannot be checked out."""
    folder, run = request.source, request.run_id
    if request.commit is None:
        message = f"the sources of run {run} are gone: {changes}, and the run had no commit"
        raise UsageError(message, remedy="Undo the changes, or start a new run.")
    if not folder.is_dir():
        remedy = "Clone the project there again, or start a new run elsewhere."
        raise UsageError(f"the sources of run {run} are gone: {changes}", remedy=remedy)
    found = git(folder, "cat-file", "-t", request.commit, check=False).strip()
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
        if kept := self.recorded.result.kept:
            code = self._enter_kept()
            if code is not None:
                return code
            text = f"{kept}, which the run kept, no longer exists: its environment is made again"
            self.progress.show_notice(text)
        with self._prepared(shell_plan) as (engine, plan, image):

            def enter() -> int:
                return engine.enter(plan, interactive=self.interactive)

            observer = ShellObserver(progress=self.progress, label=plan.title, enter=enter)
            facts = engine.execute(plan, image, observer)
        if facts.interrupted:
            return ExitCode.INTERRUPTED
        if observer.code is None:
            reason = observer.reason or "the environment could not be made"
            raise InfrastructureError(f"no shell was opened: {reason}")
        return observer.code

    def _enter_kept(self) -> int | None:
        """Open a shell in what the run has kept; ``None``: it no longer exists."""
        recorded = self.recorded
        with (
            handle_interrupts(signal.default_int_handler),
            recorded_sources(recorded, only_configuration=True) as sources,
        ):
            plan = recorded.plan(sources, recorded.request.run_id, recorded.results)
            held = kept_plan(plan, session=self._new_id())
            # A display of its own: one starts only once, and another environment may follow.
            with closing(select_engine(plan.engine)) as engine, Progress() as progress:
                observer = ShellObserver(progress=progress, label=plan.title)
                return engine.enter_kept(held, observer, interactive=self.interactive)

    def _new_id(self) -> str:
        return f"{self.recorded.request.run_id}-{SESSION}-{secrets.token_hex(2)}"

    def rerun(self, test: str | None) -> tuple[PlatformOutcome, str]:
        """Run one test, or all; return the outcome, and what the last stage that ran printed."""
        if test is not None:
            run, platform = self.recorded.request.run_id, self.recorded.result.platform
            test = name_in_results(self.recorded.results / run / platform, test)
        with self._prepared(partial(rerun_plan, test=test)) as (engine, plan, image):
            facts = engine.execute(plan, image, self._observer(plan))
            outcome = judge_platform(plan, facts)
            logs = [plan.results / f"{stage.name}.log" for stage in plan.stages]
            last = next((log for log in reversed(logs) if log.is_file()), None)
            printed = last.read_text(encoding="utf-8", errors="replace") if last else ""
        self.progress.show_result(plan.title, outcome.result)
        return outcome, printed

    def _observer(self, plan: RunPlan) -> Observer:
        return PlatformObserver(self.progress, plan.title)

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
        run_id = self._new_id()
        # The name of a work folder: `gc` finds it if this process dies.
        folder = Path(tempfile.mkdtemp(prefix=f"infini-ci-{run_id}-{platform}-"))
        try:
            with lock_run(folder, kind=SESSION):
                plan = self.recorded.plan(sources, run_id, folder)
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
class ShellObserver:
    """Ends the display when the shell's stage has started, and opens the shell."""

    progress: Progress
    label: str
    enter: Callable[[], int] | None = None
    """Opens the shell; ``None``: the engine opens it by itself."""
    code: int | None = None
    """The exit code of the shell; ``None``: it was not opened."""
    reason: str | None = None

    def event(self, event: Event) -> None:
        """Show an event, and block at the one that the shell's stage has started."""
        if getattr(event, "stage", None) != SHELL:
            self.progress.event(self.label, event)
        elif isinstance(event, StageStarted):
            self.progress.__exit__()
            self.code = self.enter() if self.enter else None
        elif isinstance(event, StageSkipped):
            self.reason = event.reason


def name_in_results(folder: Path, test: str) -> str:
    """Return the name that a test has in the results in ``folder``.

    In pytest's output it may have the path of the run's folder.
    """
    return TestNames(ResultFiles(folder=folder).record.folders)(test)


def new_session(recorded: Recorded) -> Session:
    """Return a session that shows its progress on the standard error."""
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    return Session(recorded=recorded, progress=Progress(), interactive=interactive)
