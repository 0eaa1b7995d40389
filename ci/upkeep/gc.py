"""``python -m ci gc``: find leftovers of earlier runs, and choose by age and size what to remove.

Only items that this program created and labelled are considered. On a Docker Engine these are
containers, images, compiler caches and wheelhouses; on this machine results, work folders and
caches of the host engine.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from docker.client import DockerClient
from docker.errors import APIError, ImageNotFound
from filelock import FileLock, Timeout
from pydantic import AwareDatetime, BaseModel, ValidationError
from rich.filesize import decimal

from ci.engines.docker.images import BASE_DIGEST_LABEL
from ci.engines.docker.link import explain
from ci.engines.docker.wheelhouse import PREFIX as WHEELS_PREFIX
from ci.engines.job import TRUST_LABEL
from ci.errors import InfrastructureError
from ci.facts.files import read_text_file
from ci.model.plan import HELPER_LABEL, KEPT, PLATFORM_LABEL, SESSION_LABEL
from ci.model.platforms import PLATFORMS
from ci.model.results import HOST_LOCK
from ci.model.trust import Trust
from ci.plan.planning import CACHE_PREFIX, cache_name, old_cache_name
from ci.plan.request import LARGEST_REQUEST, REQUEST_FILE
from ci.store.folder import LOCK_FILE, RESULTS_FILE, is_running
from ci.store.rows import LATEST
from ci.util.files import remove_folder, user_cache, walk
from ci.util.redaction import redact_folder

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store

LABELS = "infini-ci."
PROJECT = LABELS + "project"
RUN = LABELS + "run"
REPOSITORY = "infini-ci/"  # prefix of the names of the images that runs use
BUSY_S = 60.0  # an engine with terabytes takes that long
POLL_S = 0.2  # an engine with a few images takes 0.4 s for one caller
# Why a cache without a trust level is removed: any run could write to it.
NO_LEVEL = "no run uses caches without a trust level"
_WORK_FOLDER = re.compile(r"infini-ci-(?P<run>.+)-(?P<platform>[a-z][a-z0-9_]*)-[a-z0-9_]{8}")


# Items that may be removed, and the decision on each


class ItemKind(StrEnum):
    """The kind of an item."""

    CONTAINER = "container"
    KEPT = "failed container"  # which `run --keep` left for `shell`
    IMAGE = "image"
    CACHE = "compiler cache"
    WHEELS = "wheelhouse"
    VOLUME = "volume"  # of a container that was removed without it
    RESULTS = "results"
    WORK_FOLDER = "work folder"
    STORED_RUN = "stored run"


# Runs share items of these kinds, and recreate missing ones. Other items belong to one run.
SIZE_LIMITED = (ItemKind.IMAGE, ItemKind.CACHE, ItemKind.WHEELS)


@dataclass(frozen=True, kw_only=True)
class Item:
    """An item that this program created, on this machine or on an engine.

    Attributes:
        used: when it was last used, as far as is known
        needed: why it must stay at any age; ``None`` if it need not
        useless: why it is removed at any age; ``None`` if its age decides
        remove: removes it; raises the error of its engine or of the disk
    """

    kind: ItemKind
    name: str
    size_bytes: int
    used: datetime
    needed: str | None = None
    useless: str | None = None
    remove: Callable[[], object] = field(repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Whether an item is removed, and why."""

    item: Item
    removed: bool
    reason: str


def decide(
    items: Collection[Item], *, now: datetime, age: timedelta, size_bytes: int
) -> list[Decision]:
    """Decide on every item; the longest unused of each kind come first.

    ``age`` is how long an item may be unused, ``size_bytes`` the limit of each shared kind.
    """
    decisions = []
    days = age / timedelta(days=1)
    most = f"more than {decimal(size_bytes)} of this kind, and this is the longest unused"
    for kind in ItemKind:
        members = sorted((it for it in items if it.kind is kind), key=lambda item: item.used)
        rest = sum(item.size_bytes for item in members)
        for item in members:
            if item.needed is not None:
                removed, reason = False, item.needed
            elif item.useless is not None:
                removed, reason = True, item.useless
            elif now - item.used >= age:
                removed, reason = True, f"not used for {days:g} days"
            elif kind in SIZE_LIMITED and rest > size_bytes:
                removed, reason = True, most
            else:
                removed, reason = False, f"used within {days:g} days"
            rest -= item.size_bytes if removed else 0
            decisions.append(Decision(item=item, removed=removed, reason=reason))
    return decisions


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The items that are considered, and the runs in progress.

    Attributes:
        orphans: also items without a project's label, or of runs whose results are gone
        runs: ids of the runs in progress, here or on an engine
        platforms: the platforms of the runs in progress
        abandoned: ids of the sessions whose callers were killed on this machine
    """

    project: str
    orphans: bool
    runs: Set[str]
    platforms: Set[str]
    abandoned: Set[str] = frozenset()

    def covers(self, project: str | None) -> bool:
        return project == self.project or (project is None and self.orphans)

    def needed_by_run(self, run: str | None) -> str | None:
        return "its run is in progress" if run in self.runs else None

    def needed_on(self, platform: str) -> str | None:
        return f"a run on {platform} is in progress" if platform in self.platforms else None


# On a Docker Engine

Entry = Mapping[str, Any]  # a container, an image or a volume, as the engine describes it


@dataclass(frozen=True, kw_only=True)
class EngineContents:
    """What one engine stores, as ``docker system df --verbose`` shows it."""

    client: DockerClient
    machine: str
    containers: Sequence[Entry]
    images: Sequence[Entry]
    volumes: Sequence[Entry]

    @classmethod
    def read(cls, client: DockerClient, *, machine: str) -> EngineContents:
        """Ask the engine of ``machine``, which answers one caller at a time."""
        deadline = monotonic() + BUSY_S
        while True:
            try:
                answer = client.df()
                break
            except APIError as error:
                if "already running" not in explain(error) or monotonic() > deadline:
                    raise
            sleep(POLL_S)
        return cls(
            client=client,
            machine=machine,
            containers=answer.get("Containers") or (),
            images=answer.get("Images") or (),
            volumes=answer.get("Volumes") or (),
        )

    @property
    def running(self) -> frozenset[str]:
        """Ids of the runs whose containers run; a session needs its caller."""
        running = (_labels(item) for item in self.containers if item["State"] == "running")
        found = (labels.get(RUN) for labels in running if SESSION_LABEL not in labels)
        return frozenset(run for run in found if run)

    def items(self, scope: Scope) -> Iterator[Item]:
        """The containers, images and volumes of a project."""
        yield from self._container_items(scope)
        yield from self._image_items(scope)
        yield from self._shared_volume_items(scope)
        yield from self._volume_items(scope)

    def _container_items(self, scope: Scope) -> Iterator[Item]:
        """The containers of a project; those that have not ended are needed.

        Helpers and sessions serve a caller, which may have been killed. The caller of a session may
        also live on another machine. Without one, a shell ends after half a day.
        """
        for entry in self.containers:
            labels, state = _labels(entry), entry["State"]
            name = ", ".join(entry["Names"] or [entry["Id"][:12]]).lstrip("/")
            if labels.get(PROJECT) == scope.project:
                run = labels.get(RUN) or labels.get(HELPER_LABEL)
                needed = scope.needed_by_run(run)
                abandoned = HELPER_LABEL in labels or run in scope.abandoned
                ended = abandoned or state in ("exited", "created", "dead")
                yield Item(
                    kind=ItemKind.KEPT if name.endswith(KEPT) else ItemKind.CONTAINER,
                    name=name,
                    size_bytes=entry.get("SizeRw") or 0,
                    used=_from_seconds(entry["Created"]),
                    needed=needed if ended else f"it is {state}",
                    # A run's not by force: it may have been started just now.
                    remove=partial(
                        self.client.api.remove_container, entry["Id"], v=True, force=abandoned
                    ),
                )

    def _image_items(self, scope: Scope) -> Iterator[Item]:
        """The images of a project that have a name of this program, or none."""
        in_use = {entry["ImageID"] for entry in self.containers}
        sizes = {entry["Id"]: entry["Size"] for entry in self.images}
        for entry in self.images:
            labels, tags, image = _labels(entry), _our_tags(entry), entry["Id"]
            nameless = set(entry["RepoTags"] or ()) <= {"<none>:<none>"}
            labelled = any(name.startswith(LABELS) for name in labels)
            if labelled and (tags or nameless) and scope.covers(labels.get(PROJECT)):
                used = "a container uses it" if image in in_use else None
                short = image.removeprefix("sha256:")[:12]
                yield Item(
                    kind=ItemKind.IMAGE,
                    name=tags[0] if tags else f"{short}, without a name",
                    size_bytes=image_size(entry, sizes),
                    used=last_used(self.client, entry),
                    needed=used or scope.needed_on(_platform(entry)),
                    remove=partial(_remove_image, self.client, tags or [image]),
                )

    def _shared_volume_items(self, scope: Scope) -> Iterator[Item]:
        """The volumes of no single run: a project's compiler caches, and wheelhouses.

        An engine does not know when a volume was last used. For a cache, the last use of its
        platform's images counts instead, by any user of the engine. A wheelhouse counts as used
        when it was made: a changed folder gets another one, and a missing one is filled again.
        """
        last_runs: dict[str, datetime] = {}
        for image in self.images:
            if _our_tags(image) and (platform := _platform(image)):
                used = last_used(self.client, image)
                last_runs[platform] = max(used, last_runs.get(platform, used))
        for entry in self.volumes:
            labels, wheels = _labels(entry), entry["Name"].startswith(WHEELS_PREFIX)
            own = labels.get(PROJECT)
            if wheels and scope.covers(own):
                yield self._volume_item(ItemKind.WHEELS, entry)
            elif own == scope.project and RUN not in labels:
                platform = labels.get(PLATFORM_LABEL, "")
                item = self._volume_item(ItemKind.CACHE, entry)
                used = max(item.used, last_runs.get(platform, item.used))
                needed = item.needed or scope.needed_on(platform)
                old = entry["Name"].startswith(CACHE_PREFIX) and TRUST_LABEL not in labels
                yield replace(item, used=used, needed=needed, useless=NO_LEVEL if old else None)

    def _volume_items(self, scope: Scope) -> Iterator[Item]:
        """The volumes of a project's containers; each is removed with its container."""
        for entry in self.volumes:
            labels = _labels(entry)
            if labels.get(PROJECT) == scope.project and (run := labels.get(RUN)):
                item = self._volume_item(ItemKind.VOLUME, entry)
                name = f"{entry['Name'][:12]} of run {run}"
                needed = item.needed or scope.needed_by_run(run)
                yield replace(item, name=name, needed=needed, useless="its container is gone")

    def _volume_item(self, kind: ItemKind, entry: Entry) -> Item:
        data = entry.get("UsageData") or {}
        return Item(
            kind=kind,
            name=entry["Name"],
            size_bytes=max(0, data.get("Size", 0)),
            used=_parse_time(entry["CreatedAt"]),
            needed="a container uses it" if data.get("RefCount", 0) > 0 else None,
            remove=partial(self.client.api.remove_volume, entry["Name"]),
        )


def image_size(entry: Entry, sizes: Mapping[str, int]) -> int:
    """Return the bytes that an image adds to its base, if ``sizes`` has the base.

    Otherwise return the bytes that no other image shares. The platforms' images share most of the
    layers that they add, so only the removal of the last image frees these.
    """
    base = sizes.get(_labels(entry).get(BASE_DIGEST_LABEL, ""))
    shared = max(0, entry.get("SharedSize", 0)) if base is None else base
    return max(0, int(entry["Size"]) - shared)


def last_used(client: DockerClient, entry: Entry) -> datetime:
    """Return when an image was created or last tagged; every run tags the image it uses."""
    created = _from_seconds(entry["Created"])
    try:
        tagged = client.images.get(entry["Id"]).attrs.get("Metadata", {}).get("LastTagTime")
    except ImageNotFound:  # it has just been removed
        return created
    return max(created, _parse_time(tagged)) if tagged else created


def _platform(image: Entry) -> str:
    tags = _our_tags(image)
    by_tag = tags[0].removeprefix(REPOSITORY).partition(":")[0] if tags else ""
    return _labels(image).get(PLATFORM_LABEL, by_tag)


def _our_tags(image: Entry) -> list[str]:
    return [tag for tag in image["RepoTags"] or () if tag.startswith(REPOSITORY)]


def _labels(entry: Entry) -> Mapping[str, str]:
    return entry.get("Labels") or {}


def _remove_image(client: DockerClient, names: Sequence[str]) -> None:
    for name in names:
        client.api.remove_image(name)


def _from_seconds(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _parse_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)  # Go's empty time is in the year 1
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# On this machine


class _Request(BaseModel):
    """The fields that every version of this program has written into a run's request."""

    project: str
    platforms: tuple[str, ...]
    started_at: AwareDatetime


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """The results of one run, finished or not, in a folder that has the run's id as its name."""

    path: Path
    request: _Request
    used: datetime
    going_on: bool


def run_folders(results: Path) -> tuple[RunFolder, ...]:
    """Return every folder in ``results`` that holds the request of its run."""
    found = []
    for file in sorted(results.glob(f"*/{REQUEST_FILE}")):
        path = file.parent
        # Folders of other users or other programs are skipped.
        with suppress(OSError, ValidationError):
            if not path.is_symlink():
                text = read_text_file(file, LARGEST_REQUEST) or ""
                request = _Request.model_validate_json(text)
                used = max([request.started_at, *map(_modified_at, path.glob(RESULTS_FILE))])
                going_on = is_running(path)
                found.append(RunFolder(path=path, request=request, used=used, going_on=going_on))
    return tuple(found)


def sessions() -> dict[str, bool]:
    """The ids of this user's sessions with a folder here, each with whether its caller lives.

    A session has a folder for its results, which its caller locks. On the host engine it also has a
    work folder.
    """
    found: dict[str, bool] = {}
    for path in Path(tempfile.gettempdir()).glob("infini-ci-*-session-*"):
        name = _WORK_FOLDER.fullmatch(path.name)
        with suppress(FileNotFoundError):  # its session has just ended
            if name and path.lstat().st_uid == os.geteuid():
                found[name["run"]] = found.get(name["run"], False) or is_running(path)
    return found


def redact_interrupted(runs: Sequence[RunFolder], scope: Scope) -> Iterator[str]:
    """Hide secret values in logs whose caller was killed, and yield a note on each.

    On the host engine the agent writes the logs itself, and only its caller knows the values.
    """
    for run in runs:
        if run.request.project == scope.project and not run.going_on:
            for lock in sorted(run.path.glob(f"*/{HOST_LOCK}")):
                yield from (f"{run.path.name}: {note}" for note in redact_folder(lock.parent))


def machine_items(runs: Sequence[RunFolder], scope: Scope) -> Iterator[Item]:
    """The host engine's compiler caches, the results and the work folders of a project."""
    for platform in PLATFORMS:
        old = old_cache_name(scope.project, platform)
        for name in (old, *(cache_name(scope.project, platform, level) for level in Trust)):
            cache = user_cache() / name
            with suppress(FileNotFoundError, NotADirectoryError):  # or a run has just removed it
                used = max(map(_modified_at, (cache, *cache.iterdir())))
                item = _folder_item(ItemKind.CACHE, cache, used, scope.needed_on(platform))
                yield replace(item, useless=NO_LEVEL if name == old else None)
    for run in runs:
        if run.request.project == scope.project:
            latest = run.path.parent / LATEST
            is_latest = latest.is_symlink() and latest.resolve() == run.path.resolve()
            needed = scope.needed_by_run(run.path.name)
            needed = needed or ("the latest results" if is_latest else None)
            item = _folder_item(ItemKind.RESULTS, run.path, run.used, needed)
            yield replace(item, name=run.path.name, remove=partial(_remove_results, run.path))
    yield from _work_items({run.path.name: run.request.project for run in runs}, scope)


def _work_items(projects: Mapping[str, str], scope: Scope) -> Iterator[Item]:
    """Work folders of the host engine in this machine's temporary folder.

    ``projects`` are the projects of the runs whose results are here, by run id.
    """
    commands = []  # of the processes that this user can see
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            commands.append(os.fsdecode(process.read_bytes()))
    for path in sorted(Path(tempfile.gettempdir()).glob("infini-ci-*")):
        name = _WORK_FOLDER.fullmatch(path.name)
        if not name or not scope.covers(projects.get(name["run"])):
            continue
        with suppress(FileNotFoundError):  # its run has just removed it
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                in_use = any(str(path) in command for command in commands)
                needed = "its run is in progress" if in_use else scope.needed_by_run(name["run"])
                used = _from_seconds(status.st_mtime)
                yield _folder_item(ItemKind.WORK_FOLDER, path, used, needed)


def store_items(store: Store, scope: Scope) -> Iterator[Item]:
    """The runs in the store whose rows are damaged: no command can show them."""
    for error, head in store.damaged_runs():
        # Its project may be damaged, too.
        if scope.orphans or head.project == scope.project:
            yield Item(
                kind=ItemKind.STORED_RUN,
                name=head.run_id,
                size_bytes=0,  # a database does not know it
                used=head.started_at,
                needed=scope.needed_by_run(head.run_id),
                useless=str(error),
                remove=partial(store.remove, head.run_id),
            )


def _folder_item(kind: ItemKind, path: Path, used: datetime, needed: str | None) -> Item:
    return Item(
        kind=kind,
        name=str(path),
        size_bytes=folder_size(path),
        used=used,
        needed=needed,
        remove=partial(remove_folder, path),
    )


def _remove_results(folder: Path) -> None:
    """Remove a run's folder, unless the run has just been resumed.

    The request goes last: without it, no later call would find what an interrupted one has left.
    """
    try:
        with FileLock(folder / LOCK_FILE, timeout=0):
            for path in folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    remove_folder(path)
                elif path.name not in (REQUEST_FILE, LOCK_FILE):
                    path.unlink()
            remove_folder(folder)
    except Timeout:
        raise InfrastructureError("its run has just been resumed") from None


def folder_size(folder: Path) -> int:
    """Return the bytes of the files below ``folder`` that this user can see."""
    total = 0
    for parent, _, names in walk(folder):
        for name in names:
            with suppress(OSError):  # it has just been removed
                total += (parent / name).lstat().st_size
    return total


def _modified_at(path: Path) -> datetime:
    return _from_seconds(path.stat().st_mtime)
