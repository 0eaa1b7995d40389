"""Read a bundle back as a request and plans, as if the project were checked out here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from ci.engines.archives import chunks_of, extract
from ci.engines.select import ENGINES
from ci.errors import InfrastructureError, UsageError
from ci.model.plan import (
    CONTAINER_WHEELS,
    EngineKind,
    EnginePlan,
    ImageArchive,
    NetworkPlan,
    RunPlan,
)
from ci.plan import bundle as names
from ci.plan.bundle import BundleDocument
from ci.plan.planning import RunOptions
from ci.plan.project import Project, load_project
from ci.plan.request import (
    RunRequest,
    check_configuration,
    new_request,
    plan_request,
    selected_operators,
)
from ci.plan.source import SourceState
from ci.upkeep.bundle.file import COPY_REMEDY, BundleReader, open_archive
from ci.util.text import near_match


@dataclass(frozen=True, kw_only=True)
class OpenBundle:
    """A bundle whose sources, configuration and wheels lie in a folder."""

    path: Path
    folder: Path
    document: BundleDocument
    platforms: tuple[str, ...]

    @property
    def source(self) -> Path:
        """The project's folder, which can lie below that of its repository."""
        return self.folder / "source" / self.document.subfolder

    @cached_property
    def project(self) -> Project:
        """The configuration with the settings of the site that packed it.

        Variables of this machine's environment take precedence, as everywhere.
        """
        site = {"INFINI_CI_SITE": str(self.folder / names.SITE)}
        return load_project(self.folder / self.document.config, {**site, **os.environ})

    def request(self, results: Path, options: RunOptions, select: str | None) -> RunRequest:
        """Describe a run of the project; the commit is the one that was packed."""
        selected = selected_operators(self.project, select, self.source)
        request = new_request(
            self.project,
            self.platforms,
            source_folder=self.source,
            results=results,
            options=options.model_copy(update={"selected": selected}),
            packed=SourceState(commit=self.document.commit, dirty=self.document.dirty),
            lineage=self.document.lineage,
        )
        return request.model_copy(update={"bundle": self.path})

    def resume(self, earlier: RunRequest, asked: str = "--resume") -> RunRequest:
        """Return the request of an earlier run of this bundle, with the present paths.

        ``asked`` is the option or command for messages.
        """
        places = {"source": self.source, "config": self.project.path, "bundle": self.path}
        if (earlier.bundle is None) or earlier.commit != self.document.commit:
            message = f"{asked}: run {earlier.run_id} does not belong to {self.path}"
            raise UsageError(message, remedy="Name the bundle that it started with, or no bundle.")
        return check_configuration(earlier.model_copy(update=places), asked)

    def plans(self, request: RunRequest, results: Path) -> tuple[RunPlan, ...]:
        """Plan the run with images and wheels of the bundle."""
        return tuple(map(self.with_contents, plan_request(self.project, request, results)))

    def with_contents(self, plan: RunPlan) -> RunPlan:
        """Replace the sources of a plan and, unless it is for the host, its image and wheels."""
        plan = replace(
            plan,
            other_engines=(),  # no other engine can take the place of one that does not answer
            source=self.folder / "source",
            subfolder=self.document.subfolder,
            packed=True,
        )
        if plan.platform in self.document.host_platforms:
            return _plan_on_host(plan)
        kind = EngineKind.DOCKER if plan.engine.kind == EngineKind.AUTO else plan.engine.kind
        if not ENGINES[kind].capabilities.images:
            message = f"--bundle: {plan.platform} would run on the {plan.engine.kind} engine"
            raise UsageError(message, remedy="Its image needs a Docker Engine: --engine docker.")
        image = self.document.images[plan.platform]
        archive = ImageArchive(
            bundle=self.path,
            member=names.FOLDER + image.member,
            id=image.id,
            layers=image.layers,
            size=image.size,
        )
        wheels = self.folder / names.WHEELS / plan.platform
        # pip looks at the bundle's wheels and nowhere else.
        only_wheels = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": CONTAINER_WHEELS}
        network = NetworkPlan(
            environment={**plan.network.environment, **only_wheels},
            ca_bundle=plan.network.ca_bundle,
            wheels=wheels if wheels.is_dir() else None,
        )
        name = plan.engine.name.replace("auto", "docker")
        return replace(
            plan,
            engine=replace(plan.engine, kind=kind, name=name),
            image=replace(plan.needed_image, tag=image.tag, archive=archive),
            network=network,
        )


def _plan_on_host(plan: RunPlan) -> RunPlan:
    """Plan a platform without an image; its wheels are what pip finds on this machine."""
    if plan.engine.kind not in (EngineKind.AUTO, EngineKind.HOST):
        message = f"--bundle: {plan.platform}: got the {plan.engine.name} engine, expected host:"
        raise UsageError(f"{message} the bundle has no image", remedy="Use --engine host.")
    return replace(plan, engine=EnginePlan(name=EngineKind.HOST, kind=EngineKind.HOST))


@contextmanager
def open_bundle(path: Path, wanted: Sequence[str]) -> Iterator[OpenBundle]:
    """Verify a bundle and unpack all but its images into a folder that is removed at the end.

    ``wanted`` are the platforms to run, by default all of them.
    """
    with open_archive(path) as reader, TemporaryDirectory(prefix="infini-ci-bundle-") as made:
        folder, document = Path(made), reader.document
        platforms = _choose_platforms(document, wanted)
        images = document.images.items()
        reader.verify(without=[image.member for name, image in images if name not in platforms])
        _unpack(reader, folder, platforms)
        yield OpenBundle(path=path.resolve(), folder=folder, document=document, platforms=platforms)


def _choose_platforms(document: BundleDocument, wanted: Sequence[str]) -> tuple[str, ...]:
    known = (*document.images, *document.host_platforms)
    for name in wanted:
        if name not in known:
            has = f"{', '.join(known)}{near_match(name, known)}"
            raise UsageError(f"platform '{name}' is not in the bundle, which has {has}")
    return tuple(dict.fromkeys(wanted or known))


def _unpack(reader: BundleReader, folder: Path, platforms: Sequence[str]) -> None:
    """Put all but the images into ``folder``."""
    images = {image.member for image in reader.document.images.values()}
    members = reader.document.members.items()
    needed = sum(member.size for name, member in members if name not in images)
    free = shutil.disk_usage(folder).free
    if free < needed:
        message = f"{free:,} bytes are free in {folder.parent}, the bundle needs {needed:,}"
        raise InfrastructureError(message, remedy="Make room, or set TMPDIR.")
    wheels = [f"{names.WHEELS}{platform}/" for platform in platforms]
    for below in ("site/", names.CONFIG, *wheels):
        for name in reader.names(below):
            if ".." in PurePosixPath(name).parts:
                raise UsageError(f"the bundle holds a file named {name}", remedy=COPY_REMEDY)
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with reader.open(name) as content, path.open("wb") as file:
                shutil.copyfileobj(content, file)
    with reader.open(names.SOURCE) as archive:
        refused = extract(chunks_of(archive), folder / "source", links=True, modes=True)
    if refused:
        raise UsageError(f"{reader.path}: its sources hold {refused[0]}", remedy=COPY_REMEDY)
