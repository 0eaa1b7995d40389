"""``python -m ci gc``: what earlier runs left, and what of it goes, by age and size.

Only what this program made and labelled: on a Docker Engine containers, images and compiler caches;
on this machine results, work folders and caches of the host engine.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from docker.client import DockerClient
from docker.errors import APIError, ImageNotFound
from filelock import FileLock, Timeout
from pydantic import AwareDatetime, BaseModel, ValidationError
from rich.filesize import decimal

from ci.engines.images import BASE_DIGEST_LABEL, PLATFORM_LABEL
from ci.engines.link import explain
from ci.errors import InfrastructureError
from ci.model.platforms import PLATFORMS
from ci.plan.planning import cache_name
from ci.plan.request import REQUEST_FILE
from ci.store.folder import LOCK_FILE, RESULTS_FILE, is_running
from ci.store.rows import LATEST
from ci.util.files import user_cache

LABELS = "infini-ci."
PROJECT = LABELS + "project"
RUN = LABELS + "run"
REPOSITORY = "infini-ci/"  # of the images that runs are made of
BUSY_S = 60.0  # an engine with terabytes takes that long
POLL_S = 0.2  # an engine with a few images takes 0.4 s for one caller
_WORK_FOLDER = re.compile(r"infini-ci-(?P<run>.+)-(?P<platform>[a-z][a-z0-9_]*)-[a-z0-9_]{8}")


# What may be removed, and the choice among it


class ItemKind(StrEnum):
    """What an item is."""

    CONTAINER = "container"
    IMAGE = "image"
    CACHE = "compiler cache"
    RESULTS = "results"
    WORK_FOLDER = "work folder"


# What runs share and make again when it is gone. The rest is of one run each.
BOUNDED = (ItemKind.IMAGE, ItemKind.CACHE)


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something of ours on this machine or on an engine.

    Attributes:
        used: when it was last used, as far as anybody knows
        needed: why it must stay, whatever its age; ``None``: it need not
        remove: removes it; raises what its engine or the disk has against it
    """

    kind: ItemKind
    name: str
    size_bytes: int
    used: datetime
    needed: str | None = None
    remove: Callable[[], object] = field(repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What becomes of an item, and why."""

    item: Item
    removed: bool
    reason: str


def decide(
    items: Collection[Item], *, now: datetime, age: timedelta, size_bytes: int
) -> list[Decision]:
    """Decide on every item; the longest unused of each kind come first.

    ``age`` is how long an item may be unused, ``size_bytes`` how much of a bounded kind may stay.
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
            elif now - item.used >= age:
                removed, reason = True, f"not used for {days:g} days"
            elif kind in BOUNDED and rest > size_bytes:
                removed, reason = True, most
            else:
                removed, reason = False, f"used within {days:g} days"
            rest -= item.size_bytes if removed else 0
            decisions.append(Decision(item=item, removed=removed, reason=reason))
    return decisions


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Whose things are looked for, and what goes on meanwhile.

    Attributes:
        strangers: also what is without a project's label, or of runs whose results are gone
        runs: ids of the runs that go on, here or on an engine
        platforms: the platforms that somebody runs
    """

    project: str
    strangers: bool
    runs: Set[str]
    platforms: Set[str]

    def covers(self, project: str | None) -> bool:
        return project == self.project or (project is None and self.strangers)

    def needed_by_run(self, run: str | None) -> str | None:
        return "its run goes on" if run in self.runs else None

    def needed_on(self, platform: str) -> str | None:
        return f"a run on {platform} goes on" if platform in self.platforms else None


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
    def ask(cls, client: DockerClient) -> EngineContents:
        """Ask the engine, which looks for one caller at a time, and refuses the others."""
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
            machine=client.info()["Name"],
            containers=answer.get("Containers") or (),
            images=answer.get("Images") or (),
            volumes=answer.get("Volumes") or (),
        )

    @property
    def running(self) -> frozenset[str]:
        """Ids of the runs whose containers run."""
        found = (_labels(item).get(RUN) for item in self.containers if item["State"] == "running")
        return frozenset(run for run in found if run)

    def items(self, scope: Scope) -> Iterator[Item]:
        """The containers, images and compiler caches of a project."""
        yield from self._container_items(scope)
        yield from self._image_items(scope)
        yield from self._cache_items(scope)

    def _container_items(self, scope: Scope) -> Iterator[Item]:
        """The containers of a project; those that have not ended are needed."""
        for entry in self.containers:
            labels, state = _labels(entry), entry["State"]
            if labels.get(PROJECT) == scope.project:
                ended = state in ("exited", "created", "dead")
                yield Item(
                    kind=ItemKind.CONTAINER,
                    name=", ".join(entry["Names"] or [entry["Id"][:12]]).lstrip("/"),
                    size_bytes=entry.get("SizeRw") or 0,
                    used=_time(entry["Created"]),
                    needed=scope.needed_by_run(labels.get(RUN)) if ended else f"it is {state}",
                    # Not by force: it may have been started just now.
                    remove=partial(self.client.api.remove_container, entry["Id"], v=True),
                )

    def _image_items(self, scope: Scope) -> Iterator[Item]:
        """The images of a project that have names of ours, or none."""
        in_use = {entry["ImageID"] for entry in self.containers}
        sizes = {entry["Id"]: entry["Size"] for entry in self.images}
        for entry in self.images:
            labels, tags, image = _labels(entry), _our_tags(entry), entry["Id"]
            nameless = set(entry["RepoTags"] or ()) <= {"<none>:<none>"}
            labelled = any(name.startswith(LABELS) for name in labels)
            if labelled and (tags or nameless) and scope.covers(labels.get(PROJECT)):
                used = "a container is made of it" if image in in_use else None
                short = image.removeprefix("sha256:")[:12]
                yield Item(
                    kind=ItemKind.IMAGE,
                    name=tags[0] if tags else f"{short}, without a name",
                    size_bytes=image_size(entry, sizes),
                    used=last_used(self.client, entry),
                    needed=used or scope.needed_on(_platform(entry)),
                    remove=partial(_remove_image, self.client, tags or [image]),
                )

    def _cache_items(self, scope: Scope) -> Iterator[Item]:
        """The volumes with compiler caches of a project.

        An engine does not know when a volume was last used. Its platform's images show it: when
        one of them was last used, by anybody who shares the engine.
        """
        last_runs: dict[str, datetime] = {}
        for image in self.images:
            if _our_tags(image) and (platform := _platform(image)):
                used = last_used(self.client, image)
                last_runs[platform] = max(used, last_runs.get(platform, used))
        for entry in self.volumes:
            labels = _labels(entry)
            if labels.get(PROJECT) == scope.project:
                platform = labels.get(PLATFORM_LABEL, "")
                created = _parsed(entry["CreatedAt"])
                data = entry.get("UsageData") or {}
                mounted = "a container has it" if data.get("RefCount", 0) > 0 else None
                yield Item(
                    kind=ItemKind.CACHE,
                    name=entry["Name"],
                    size_bytes=max(0, data.get("Size", 0)),
                    used=max(created, last_runs.get(platform, created)),
                    needed=mounted or scope.needed_on(platform),
                    remove=partial(self.client.api.remove_volume, entry["Name"]),
                )


def image_size(entry: Entry, sizes: Mapping[str, int]) -> int:
    """What an image adds to its base, of which ``sizes`` tells the size; else what no other has.

    The platforms' images share most of what they add, so the last one of them frees it.
    """
    base = sizes.get(_labels(entry).get(BASE_DIGEST_LABEL, ""))
    shared = max(0, entry.get("SharedSize", 0)) if base is None else base
    return max(0, int(entry["Size"]) - shared)


def last_used(client: DockerClient, entry: Entry) -> datetime:
    """When an image was made, or since then tagged, which every run does that takes it."""
    created = _time(entry["Created"])
    try:
        tagged = client.images.get(entry["Id"]).attrs.get("Metadata", {}).get("LastTagTime")
    except ImageNotFound:  # somebody has just removed it
        return created
    return max(created, _parsed(tagged)) if tagged else created


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


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _parsed(text: str) -> datetime:
    moment = datetime.fromisoformat(text)  # a time of Go's without a value is of the year 1
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# On this machine


class _Request(BaseModel):
    """What every version of this program has written into a run's request."""

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
    """Every folder in ``results`` that says which run it is of."""
    found = []
    for file in sorted(results.glob(f"*/{REQUEST_FILE}")):
        path = file.parent
        # One of another user, or not written by this program, is passed over.
        with suppress(OSError, ValidationError):
            if not path.is_symlink():
                request = _Request.model_validate_json(file.read_bytes())
                used = max([request.started_at, *map(_changed, path.glob(RESULTS_FILE))])
                going_on = is_running(path)
                found.append(RunFolder(path=path, request=request, used=used, going_on=going_on))
    return tuple(found)


def machine_items(runs: Sequence[RunFolder], scope: Scope) -> Iterator[Item]:
    """The host engine's compiler caches, the results and the work folders of a project."""
    for platform in PLATFORMS:
        cache = user_cache() / cache_name(scope.project, platform)
        if cache.is_dir():
            used = max(map(_changed, (cache, *cache.iterdir())))
            yield _folder_item(ItemKind.CACHE, cache, used, scope.needed_on(platform))
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

    ``projects`` are those of the runs whose results are here.
    """
    commands = []  # of this machine's processes, as far as they can be seen
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            commands.append(os.fsdecode(process.read_bytes()))
    for path in sorted(Path(tempfile.gettempdir()).glob("infini-ci-*")):
        name = _WORK_FOLDER.fullmatch(path.name)
        if not name or path.is_symlink() or path.stat().st_uid != os.geteuid():
            continue
        if scope.covers(projects.get(name["run"])):
            in_use = any(str(path) in command for command in commands)
            needed = "its run goes on" if in_use else scope.needed_by_run(name["run"])
            yield _folder_item(ItemKind.WORK_FOLDER, path, _changed(path), needed)


def _folder_item(kind: ItemKind, path: Path, used: datetime, needed: str | None) -> Item:
    return Item(
        kind=kind,
        name=str(path),
        size_bytes=size_of(path),
        used=used,
        needed=needed,
        remove=partial(shutil.rmtree, path),
    )


def _remove_results(folder: Path) -> None:
    """Remove a run's folder, unless somebody has just gone on with it."""
    try:
        with FileLock(folder / LOCK_FILE, timeout=0):
            shutil.rmtree(folder)
    except Timeout:
        raise InfrastructureError("its run has just been resumed") from None


def size_of(folder: Path) -> int:
    """Bytes of the files below ``folder``, as far as they can be seen."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # it has just gone
                total += (Path(parent) / name).lstat().st_size
    return total


def _changed(path: Path) -> datetime:
    return _time(path.stat().st_mtime)
