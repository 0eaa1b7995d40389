"""What is on a Docker Engine: our containers, images and compiler caches, told by their labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from time import monotonic, sleep
from typing import Any

from docker.client import DockerClient
from docker.errors import APIError, ImageNotFound

from ci.engines.images import BASE_DIGEST_LABEL
from ci.engines.link import explain
from ci.upkeep.gc.items import Item, Kind

LABELS = "infini-ci."
PROJECT = LABELS + "project"
PLATFORM = LABELS + "platform"
RUN = LABELS + "run"
REPOSITORY = "infini-ci/"  # of the images that runs are made of
BUSY_S = 60.0  # an engine with terabytes takes that long
POLL_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What one engine stores, as ``docker system df --verbose`` shows it."""

    client: DockerClient
    machine: str
    containers: tuple[Mapping[str, Any], ...]
    images: tuple[Mapping[str, Any], ...]
    volumes: tuple[Mapping[str, Any], ...]

    @classmethod
    def ask(cls, client: DockerClient) -> Usage:
        answer = _disk_usage(client)
        return cls(
            client=client,
            machine=client.info()["Name"],
            containers=tuple(answer.get("Containers") or ()),
            images=tuple(answer.get("Images") or ()),
            volumes=tuple(answer.get("Volumes") or ()),
        )

    @property
    def running(self) -> frozenset[str]:
        """Ids of the runs whose containers run."""
        found = (_labels(item).get(RUN) for item in self.containers if item["State"] == "running")
        return frozenset(run for run in found if run)


def _disk_usage(client: DockerClient) -> dict[str, Any]:
    """What the engine stores; it looks for one caller at a time, and refuses the others."""
    deadline = monotonic() + BUSY_S
    while True:
        try:
            answer: dict[str, Any] = client.df()
            return answer
        except APIError as error:
            if "already running" not in explain(error) or monotonic() > deadline:
                raise
        sleep(POLL_S)


def container_items(usage: Usage, project: str, busy: Set[str]) -> Iterator[Item]:
    """The containers of a project that are not running."""
    for entry in usage.containers:
        labels = _labels(entry)
        if labels.get(PROJECT) != project:
            continue
        state = entry["State"]
        ended = state in ("exited", "created", "dead")
        going_on = "its run goes on" if labels.get(RUN) in busy else None
        yield Item(
            kind=Kind.CONTAINER,
            name=", ".join(entry["Names"] or [entry["Id"][:12]]).lstrip("/"),
            size_bytes=entry.get("SizeRw") or 0,
            used=_time(entry["Created"]),
            needed=going_on if ended else f"it is {state}",
            remove=partial(_remove_container, usage.client, entry["Id"]),
        )


def image_items(usage: Usage, project: str, busy: Set[str], *, strangers: bool) -> Iterator[Item]:
    """The images of a project; ``busy`` are the platforms that somebody runs.

    ``strangers``: also what our builds left without a name, and without a project's label.
    """
    in_use = {entry["ImageID"] for entry in usage.containers}
    sizes = {entry["Id"]: entry["Size"] for entry in usage.images}
    for entry in usage.images:
        labels, tags = _labels(entry), _our_tags(entry)
        if not _is_ours(labels, tags, entry) or not _is_of(labels, project, strangers=strangers):
            continue
        platform = _platform(labels, tags)
        going_on = f"a run on {platform} goes on" if platform in busy else None
        used = "a container is made of it" if entry["Id"] in in_use else None
        yield Item(
            kind=Kind.IMAGE,
            name=tags[0] if tags else f"{entry['Id'].removeprefix('sha256:')[:12]}, without a name",
            size_bytes=image_size(entry, sizes),
            used=last_used(usage.client, entry),
            needed=used or going_on,
            remove=partial(_remove_image, usage.client, tags or [entry["Id"]]),
        )


def image_size(entry: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """What an image adds to its base, of which ``sizes`` tells the size; else what no other has.

    The platforms' images share most of what they add, so the last one of them frees it.
    """
    base = sizes.get(_labels(entry).get(BASE_DIGEST_LABEL, ""))
    shared = max(0, entry.get("SharedSize", 0)) if base is None else base
    return max(0, int(entry["Size"]) - shared)


def cache_items(
    usage: Usage, project: str, busy: Set[str], last_runs: Mapping[str, datetime]
) -> Iterator[Item]:
    """The compiler caches of a project.

    An engine does not know when a volume was last used: ``last_runs`` says it by platform.
    """
    for entry in usage.volumes:
        labels = _labels(entry)
        if labels.get(PROJECT) != project:
            continue
        platform = labels.get(PLATFORM, "")
        created = _parsed(entry["CreatedAt"])
        data = entry.get("UsageData") or {}
        going_on = f"a run on {platform} goes on" if platform in busy else None
        mounted = "a container has it" if data.get("RefCount", 0) > 0 else None
        yield Item(
            kind=Kind.CACHE,
            name=entry["Name"],
            size_bytes=max(0, data.get("Size", 0)),
            used=max(created, last_runs.get(platform, created)),
            needed=mounted or going_on,
            remove=partial(_remove_volume, usage.client, entry["Name"]),
        )


def last_runs(usage: Usage) -> dict[str, datetime]:
    """When an image of each platform was last used, by anybody who shares the engine."""
    found: dict[str, datetime] = {}
    for entry in usage.images:
        tags = _our_tags(entry)
        if tags and (platform := _platform(_labels(entry), tags)):
            used = last_used(usage.client, entry)
            found[platform] = max(used, found.get(platform, used))
    return found


def last_used(client: DockerClient, entry: Mapping[str, Any]) -> datetime:
    """When an image was made, or since then tagged, which every run does that takes it."""
    created = _time(entry["Created"])
    try:
        tagged = client.images.get(entry["Id"]).attrs.get("Metadata", {}).get("LastTagTime")
    except ImageNotFound:  # somebody has just removed it
        return created
    return max(created, _parsed(tagged)) if tagged else created


def _is_ours(labels: Mapping[str, str], tags: list[str], entry: Mapping[str, Any]) -> bool:
    labelled = any(name.startswith(LABELS) for name in labels)
    return labelled and (bool(tags) or not _tags(entry))


def _is_of(labels: Mapping[str, str], project: str, *, strangers: bool) -> bool:
    return labels.get(PROJECT, project if strangers else None) == project


def _platform(labels: Mapping[str, str], tags: list[str]) -> str:
    by_tag = tags[0].removeprefix(REPOSITORY).partition(":")[0] if tags else ""
    return labels.get(PLATFORM, by_tag)


def _our_tags(entry: Mapping[str, Any]) -> list[str]:
    return [tag for tag in _tags(entry) if tag.startswith(REPOSITORY)]


def _tags(entry: Mapping[str, Any]) -> list[str]:
    return [tag for tag in entry["RepoTags"] or () if tag != "<none>:<none>"]


def _labels(entry: Mapping[str, Any]) -> Mapping[str, str]:
    return entry.get("Labels") or {}


def _remove_container(client: DockerClient, name: str) -> None:
    client.api.remove_container(name, v=True)  # not by force: it may have been started just now


def _remove_image(client: DockerClient, names: list[str]) -> None:
    for name in names:
        client.api.remove_image(name)


def _remove_volume(client: DockerClient, name: str) -> None:
    client.api.remove_volume(name)


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _parsed(text: str) -> datetime:
    moment = datetime.fromisoformat(text)  # a time of Go's without a value is of the year 1
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
