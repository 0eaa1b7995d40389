"""The request of a run: stored in its folder, and checked when the run is resumed.

A result belongs to a commit. So a resumed run needs the same files and the same configuration that
it began with.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from ci.errors import UsageError
from ci.model.plan import RunPlan
from ci.model.results import NO_LINEAGE, Lineage, PlatformResult, RunResult
from ci.plan import git_history, source
from ci.plan.lineage import read_lineage
from ci.plan.planning import AS_CONFIGURED, RunOptions
from ci.plan.project import SELECTION_FILES, Project, plan_run
from ci.plan.source import SourceState
from ci.util.files import file_digest
from ci.util.invocation import command
from ci.util.lines import parse_object
from ci.util.text import join_names, make_storable, near_match

REQUEST_FILE = "request.json"
IMPORTED = "imported"  # key of the request of a run from elsewhere
REQUEST_VERSION: Literal[1] = 1  # of the document; other versions are refused
LARGEST_REQUEST = 1 << 20  # bytes; one has 1,000
SELECT = "--select"


class RunRequest(RunOptions):
    """The request of a run, stored in the run's folder for ``--resume``."""

    version: Literal[1] = REQUEST_VERSION
    run_id: str
    project: str
    commit: str | None
    dirty: bool
    source: Path
    source_digest: str
    config: Path
    config_digest: str
    platforms: tuple[str, ...]
    started_at: datetime
    bundle: Path | None = None
    """The bundle with the sources and the configuration."""
    system: str | None = None
    """The system that carries the run out, in place of an engine; its results are imported."""
    lineage: Lineage = NO_LINEAGE
    notes: tuple[str, ...] = ()
    """Notes on the sources, for each row."""

    def result(self, engine: str, platforms: Iterable[PlatformResult]) -> RunResult:
        """Return the result of the run, as of now."""
        return RunResult(
            run_id=self.run_id,
            project=self.project,
            commit=self.commit,
            dirty=self.dirty,
            started_at=self.started_at,
            finished_at=datetime.now(UTC),
            engine=engine,
            platforms=tuple(platforms),
            lineage=self.lineage,
        )


def new_request(
    project: Project,
    platforms: Sequence[str],
    *,
    source_folder: Path,
    results: Path,
    options: RunOptions = AS_CONFIGURED,
    packed: SourceState | None = None,
    lineage: Lineage = NO_LINEAGE,
) -> RunRequest:
    """Make the request of a new run; its id has the time, the commit and four random digits.

    ``results`` is the folder of all runs; it is not part of the sources, even if it is inside.
    ``packed`` and ``lineage`` are those of a bundle's sources when the bundle was created.
    """
    folder = source_folder.resolve()
    for path in map(str, (folder, project.path)):
        if (written := make_storable(path)) != path:
            raise UsageError(f"{written}: the name is not UTF-8", remedy="Rename the folder.")
    state = packed or source.state(folder)
    now = datetime.now(UTC).replace(microsecond=0)
    commit = state.commit[:8] if state.commit else "nogit"
    return RunRequest(
        run_id=f"{now:%Y%m%dT%H%M%SZ}-{commit}-{secrets.token_hex(2)}",
        project=project.config.project,
        commit=state.commit,
        dirty=state.dirty,
        notes=state.notes,
        source=folder,
        source_digest=_source_digest(folder, results, packed=packed is not None),
        config=project.path,
        config_digest=file_digest(project.path),
        platforms=tuple(platforms),
        started_at=now,
        lineage=lineage if packed else read_lineage(folder, state.commit, project.environ),
        **options.model_dump(),
    )


def selected_operators(project: Project, option: str | None, folder: Path) -> str | None:
    """Return the selected operators in a normal form; ``None``: all.

    The selection is ``option``, or else the caller's environment variable. Only the project's build
    can interpret names and patterns. A selection file must be in ``folder``, the sources, and is
    named relative to it, since a container has the sources at another place.

    Raises:
        UsageError: The project does not support selections, or the file is not in the sources.
    """
    section = project.config.selection
    if section is None:
        if option is None:
            return None
        message = f"{SELECT}: {project.path}: got no `selection:`, expected one"
        remedy = "Set the variable that passes the selection: `selection: {variable: NAME}`"
        raise UsageError(message, remedy=remedy)
    origin = section.variable if option is None else SELECT
    text = (project.environ.get(section.variable, "") if option is None else option).strip()
    if text.endswith(SELECTION_FILES):
        return _selection_file(text, folder.resolve(), origin)
    words = text.replace(",", " ").split()
    return None if words in ([], ["all"]) else ",".join(words)


def _selection_file(text: str, folder: Path, origin: str) -> str:
    """Return a file of the sources, relative to them.

    ``text`` is relative to the current folder or to the sources.
    """
    path = next((at / text for at in (Path.cwd(), folder) if (at / text).is_file()), None)
    if path is None:
        wrong = f"the file {text} does not exist"
    else:
        path = path.resolve()
        if path.is_relative_to(folder) and path.relative_to(folder) in source.files(folder):
            return path.relative_to(folder).as_posix()
        wrong = f"{path} is not among the sources that a run copies"
    raise UsageError(
        f"{origin}: {wrong}",
        remedy=f"Name a file of {folder} that git does not ignore, or the operators:"
        f" {SELECT} 'abs,add'.",
    )


def plan_request(project: Project, request: RunRequest, results: Path) -> tuple[RunPlan, ...]:
    """Plan every platform of a run; ``results`` is the folder of all runs."""
    return plan_run(
        project,
        request.platforms,
        run_id=request.run_id,
        source=request.source,
        results=results,
        options=request,
    )


def load_request(results: Path, run_id: str) -> RunRequest:
    """Return the request of an earlier run; raises ``UsageError`` if its configuration changed."""
    request = read_request(results, run_id)
    if request.bundle is not None:
        message = f"--resume: got no --bundle, expected that of run {run_id}"
        bundle = shlex.quote(str(request.bundle))
        raise UsageError(message, remedy=f"Add the option: --bundle {bundle}")
    if request.system is not None:
        message = f"--resume: run {run_id} was submitted to {request.system}"
        remedy = f"Fetch its results, then: {command('import', run_id)}\nOr start a new run."
        raise UsageError(f"{message}, expected a run that began here", remedy=remedy)
    return check_configuration(request)


def is_configuration_changed(request: RunRequest) -> bool:
    """Whether the configuration of a run is no longer the file that it began with."""
    return not request.config.is_file() or file_digest(request.config) != request.config_digest


def check_configuration(request: RunRequest, asked: str = "--resume") -> RunRequest:
    """Return ``request``; raises ``UsageError`` if its configuration changed."""
    if is_configuration_changed(request):
        what = "has changed" if request.config.is_file() else "has been removed or renamed"
        message = f"{asked}: {request.config} {what} since run {request.run_id} began"
        raise UsageError(message, remedy="Undo the change, or start a new run.")
    return request


def read_request(results: Path, run_id: str, asked: str = "--resume") -> RunRequest:
    """Read back the request of an earlier run; ``asked`` is the command for messages."""
    path = results / run_id / REQUEST_FILE
    try:
        with path.open("rb") as file:
            document = parse_object(file.read(LARGEST_REQUEST).decode())
        _check_origin(path, document, asked)
        return RunRequest.model_validate(document)
    except OSError:
        folders = (path.parent for path in results.glob(f"*/{REQUEST_FILE}"))
        known = sorted(folder.name for folder in folders if not folder.is_symlink())  # no latest
        message = f"{asked}: there is no run '{run_id}' in {results}{near_match(run_id, known)}"
        newest = f"The newest: {join_names(known[::-1])}." if known else "It holds none yet."
        raise UsageError(message, remedy=newest) from None
    except ValueError as error:
        message = f"{asked}: {path}: got an invalid request: {error}"
        raise UsageError(message, remedy="Start a new run.") from None


def _check_origin(path: Path, document: Mapping[str, object], asked: str) -> None:
    """Raise ``UsageError`` for the request of an imported run, or of another version."""
    if document.get(IMPORTED):
        message = f"{asked}: run {path.parent.name} was imported, expected a run that began here"
        remedy = "Resume it where it began, then import it again."
        if asked != "--resume":
            remedy = (
                f"Use {asked} on the machine where it began: an import copies neither the sources"
                " nor the commands of a run. Here, check its commit out and start a new run."
            )
        raise UsageError(message, remedy=remedy)
    if (version := document.get("version")) != REQUEST_VERSION:
        message = f"{asked}: {path}: got a request of version {version!r:.100}, expected version"
        remedy = "Resume it with the version of this program that started it, or start a new run."
        raise UsageError(f"{message} {REQUEST_VERSION}", remedy=remedy)


def imported_request(project: str, platforms: Sequence[str], started_at: datetime) -> str:
    """The request of a run from elsewhere, which ``gc`` reads and ``--resume`` refuses.

    The original is not kept: a stranger's request can name any configuration of this machine, or
    one that came with the run, whose commands ``--resume`` would execute.
    """
    times = {"started_at": started_at.isoformat()}
    return json.dumps({IMPORTED: True, "project": project, "platforms": [*platforms], **times})


def source_changes(request: RunRequest, results: Path) -> str | None:
    """Return how the sources changed since the run began; ``None``: they did not."""
    packed = request.bundle is not None  # then the commit is the bundle's
    commit = request.commit if packed else source.state(request.source).commit
    if commit != request.commit:
        return f"they are at commit {commit}, but the run began with {request.commit}"
    if _source_digest(request.source, results, packed=packed) != request.source_digest:
        return f"files in {request.source} have changed since the run began"
    return None


def _source_digest(folder: Path, results: Path, *, packed: bool) -> str:
    """Return a digest of names, contents and modes of all files, as an engine copies them.

    Also of the tags, if the build may read its version from them.
    """
    digest = hashlib.sha256()
    if not packed and git_history.travels(folder):
        digest.update(os.fsencode(git_history.tags_of(folder)))
    results = results.resolve()
    for relative in source.files(folder, packed=packed):
        path = folder / relative
        if path.is_relative_to(results):
            continue
        with source.readable(path):
            digest.update(repr((str(relative), *_digest_entry(path))).encode())
    return digest.hexdigest()


def _digest_entry(path: Path) -> tuple[str, ...]:
    if path.is_symlink():
        return "link", str(path.readlink())
    if path.is_dir():  # a submodule that is not checked out
        return ("folder",)
    executable = path.stat().st_mode & 0o100
    return "program" if executable else "file", file_digest(path)
