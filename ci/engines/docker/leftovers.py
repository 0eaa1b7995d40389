"""What a Docker Engine keeps of earlier runs: containers, images, compiler caches, wheelhouses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import monotonic, sleep
from typing import Any

from docker.client import DockerClient
from docker.errors import APIError, ImageNotFound

from ci.engines import typed_errors
from ci.engines.docker.images import BASE_DIGEST_LABEL
from ci.engines.docker.link import (
    DOCKER,
    SDK_ERRORS,
    EngineProduct,
    explain,
    typed_bad_answers,
    typed_reasons,
)
from ci.engines.docker.wheelhouse import PREFIX as WHEELS_PREFIX
from ci.engines.job import TRUST_LABEL
from ci.engines.leftovers import NO_LEVEL, Item, ItemKind, Scope, from_seconds
from ci.model.plan import HELPER_LABEL, KEPT, PLATFORM_LABEL, SESSION_LABEL
from ci.plan.planning import CACHE_PREFIX

LABELS = "infini-ci."
PROJECT = LABELS + "project"
RUN = LABELS + "run"
REPOSITORY = "infini-ci/"  # prefix of the names of the images that runs use
BUSY_S = 60.0  # an engine with terabytes takes that long
POLL_S = 0.2  # an engine with a few images takes 0.4 s for one caller
Entry = Mapping[str, Any]  # a container, an image or a volume, as the engine describes it


@contextmanager
def _typed_errors(product: EngineProduct) -> Iterator[None]:
    what = f"asking the {product.name}"
    remedy = f"check `{product.command} info` and the engine's log"
    with (
        typed_errors(what, *SDK_ERRORS, remedy=remedy, explain=explain),
        typed_bad_answers(f"a {product.name}"),
    ):
        yield


def _disk_usage(client: DockerClient) -> Mapping[str, Any]:
    """Ask what an engine stores; it answers one caller at a time."""
    deadline = monotonic() + BUSY_S
    while True:
        try:
            found: Mapping[str, Any] = client.df()
            return found
        except APIError as error:
            if "already running" not in explain(error) or monotonic() > deadline:
                raise
        sleep(POLL_S)


@dataclass(frozen=True, kw_only=True)
class EngineContents:
    """What one engine stores, as ``docker system df --verbose`` shows it."""

    client: DockerClient
    product: EngineProduct
    identity: str
    place: str
    containers: Sequence[Entry]
    images: Sequence[Entry]
    volumes: Sequence[Entry]

    @classmethod
    def read(
        cls, client: DockerClient, info: Mapping[str, Any], product: EngineProduct = DOCKER
    ) -> EngineContents:
        """Ask the engine that ``info`` describes."""
        with _typed_errors(product):
            answer = _disk_usage(client)
            return cls(
                client=client,
                product=product,
                identity=info["ID"],
                place=f"{product.name} of {info['Name']}",
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
        with _typed_errors(self.product):
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
                    used=from_seconds(entry["Created"]),
                    needed=needed if ended else f"it is {state}",
                    # A run's not by force: it may have been started just now.
                    remove=_removing(
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
                    remove=_removing(_remove_image, self.client, tags or [image]),
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
            remove=_removing(self.client.api.remove_volume, entry["Name"]),
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
    created = from_seconds(entry["Created"])
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


def _parse_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)  # Go's empty time is in the year 1
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _removing(remove: Callable[..., object], *given: Any, **options: Any) -> Callable[[], None]:
    """Return what removes an item; its errors are those of this program."""

    def removal() -> None:
        with typed_reasons("the engine"):
            remove(*given, **options)

    return removal
