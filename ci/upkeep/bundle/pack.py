"""Packs a bundle: images, wheels, the program, configuration and sources."""

from __future__ import annotations

import gzip
import os
import platform as machine
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from tempfile import TemporaryFile
from typing import BinaryIO

import yaml

from ci.engines import EngineMessage, ImageEngine
from ci.engines.docker.link import typed_sdk_errors
from ci.errors import ConfigError, InfrastructureError, UsageError
from ci.model.plan import RunPlan
from ci.plan import bundle as names
from ci.plan import git_history, source
from ci.plan.bundle import BundledImage, BundleDocument
from ci.plan.project import SITE_FILE, Project
from ci.plan.request import RunRequest
from ci.run.platform import prepare_image
from ci.run.progress import PlatformObserver, Progress
from ci.upkeep.bundle.file import BundleWriter, new_bundle
from ci.upkeep.bundle.wheels import collect_wheels, download_program, program_requirements
from ci.util.files import PROGRAM_FOLDERS, PROGRAM_ROOT

PROGRAM_FILES = ("LICENSE", "ci.yaml", "pyproject.toml")

# An image of 1,557 MB (2 cores): level 1 takes 16 CPU-s for 523 MB, level 3 takes 21 CPU-s for 499
# MB. Without compression the disk is the bottleneck: 21 s of wall time instead of 26.
COMPRESSION_LEVEL = 1
LARGEST_SHARE = 0.6  # the largest compressed size, by an image's size; a third for the image above
README_TEMPLATE = Path(__file__).with_name("readme.md")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, kw_only=True)
class PlatformContents:
    """The part of one platform: its image, which an engine has, and a folder of wheels."""

    plan: RunPlan
    engine: ImageEngine
    image: BundledImage
    wheels: Path


@dataclass(kw_only=True)
class Packer:
    """Packs the project and the platforms of a request."""

    project: Project
    request: RunRequest
    connect: Callable[[RunPlan], ImageEngine]
    wheels: Sequence[str]  # requirements in addition to those that pip finds
    progress: Progress
    folder: Path  # a temporary one

    def pack(self, plans: Sequence[RunPlan], output: Path) -> BundleDocument:
        """Write the bundle to ``output``, building the images that are missing.

        Without plans it has sources and configuration alone, for the host engine of a machine.
        """
        configuration = find_configuration(self.project, self.request)
        site, left_out = site_settings(self.project, self.request, configuration)
        platforms = [self._prepare(plan) for plan in plans]
        _check_space(output, [each.image.size for each in platforms])
        left_out += self._pack_source(output)
        with new_bundle(output) as writer:
            if platforms:
                writer.add_text(names.README, readme(self.request, output))
                self._add_program(writer)
                if bundle := self.project.network().ca_bundle:
                    writer.add_file(names.CA_BUNDLE, bundle)
            # A machine without a network needs none of this site's proxies and indexes.
            writer.add_text(names.SITE, site if platforms else "{}\n")
            for name, path in configuration.files.items():
                writer.add_file(names.CONFIG + name, path)
            writer.add_file(names.SOURCE, self.folder / names.SOURCE)
            for each in platforms:
                self._add_platform(writer, each, output.parent)
            document = BundleDocument(
                version=names.VERSION,
                project=self.request.project,
                commit=self.request.commit,
                dirty=self.request.dirty,
                lineage=self.request.lineage,
                created_at=datetime.now(UTC),
                python=PYTHON,
                machine=machine.machine(),
                config=configuration.path,
                images={each.plan.platform: each.image for each in platforms},
                members=writer.members,
                left_out=tuple(left_out),
                subfolder=git_history.subfolder(self.request.source),
                host_platforms=() if platforms else self.request.platforms,
            )
            writer.add_text(names.DOCUMENT, document.model_dump_json(indent=1))
        return document

    def _prepare(self, plan: RunPlan) -> PlatformContents:
        engine, observer = self.connect(plan), PlatformObserver(self.progress, plan.label)
        image = prepare_image(engine, plan, observer)
        digest = str(image.digest)
        size, layers = engine.images.inspect(digest)
        bundled = BundledImage(
            member=f"{names.IMAGES}{plan.platform}.tar.gz",
            tag=image.reference,
            id=digest,
            layers=layers,
            size=size,
        )
        wheels = self.folder / names.WHEELS / plan.platform
        collect_wheels(engine, plan, image, wheels, wanted=self.wheels, observer=observer)
        return PlatformContents(plan=plan, engine=engine, image=bundled, wheels=wheels)

    def _add_program(self, writer: BundleWriter) -> None:
        """Add the program that runs the bundle: the one that packs it."""
        for name in program_files():
            writer.add_file(f"{names.PROGRAM}{name}", PROGRAM_ROOT / name)
        writer.add_text(names.PROGRAM_REQUIREMENTS, "\n".join(program_requirements()) + "\n")
        wheels = self.folder / names.PROGRAM_WHEELS
        text = "collecting the wheels of the program itself"
        self.progress.event("bundle", EngineMessage(text))
        download_program(wheels)
        for path in sorted(wheels.iterdir()):
            writer.add_file(f"{names.PROGRAM_WHEELS}{path.name}", path)

    def _pack_source(self, output: Path) -> list[str]:
        """Pack the sources without an earlier bundle and the site file, for its passwords."""
        folder = self.request.source
        own = [path for path in (folder / SITE_FILE, output) if path.is_relative_to(folder)]
        without = frozenset(path.relative_to(folder) for path in own)
        with (self.folder / names.SOURCE).open("wb") as archive:
            left_out = source.write_archive(folder, archive, without=without)
        return [f"source: {name}" for name in left_out]

    def _add_platform(self, writer: BundleWriter, each: PlatformContents, folder: Path) -> None:
        for path in sorted(filter(Path.is_file, each.wheels.iterdir())):
            writer.add_file(f"{names.WHEELS}{each.plan.platform}/{path.name}", path)
        text = f"packing {each.image.tag}"
        self.progress.event(each.plan.label, EngineMessage(text))
        # First into a file: an archive needs the size before the content. Not in the temporary
        # folder, which may be in memory.
        with typed_sdk_errors("the Docker Engine"), TemporaryFile(dir=folder) as file:
            compress(each.engine.images.save(each.image.id), file)
            writer.add(each.image.member, file)


def program_files() -> list[Path]:
    """Return the files of the program itself, relative to ``PROGRAM_ROOT``."""
    files = [Path(it, name) for it in PROGRAM_FOLDERS for name in source.files(PROGRAM_ROOT / it)]
    return files + [Path(name) for name in PROGRAM_FILES if (PROGRAM_ROOT / name).is_file()]


def readme(request: RunRequest, output: Path) -> str:
    """Return the text that lists the contents and the commands to run them."""
    commit = f" at {request.commit[:12]}" if request.commit else ""
    return Template(README_TEMPLATE.read_text(encoding="utf-8")).substitute(
        project=request.project,
        platforms=", ".join(request.platforms),
        commit=commit + (", with uncommitted changes" if request.dirty else ""),
        machine=machine.machine(),
        python=PYTHON,
        commands=commands(output),
    )


def commands(output: Path) -> str:
    """Return the commands for the other machine, to be run in the folder of the bundle."""
    name = shlex.quote(output.name)
    program = names.FOLDER + names.PROGRAM
    wheels = names.FOLDER + names.PROGRAM_WHEELS
    requirements = names.FOLDER + names.PROGRAM_REQUIREMENTS
    install = f"pip install --no-index --find-links {wheels} --requirement {requirements}"
    return (
        f"tar -xf {name} {program.rstrip('/')}\n"
        f"python3 -m venv venv && venv/bin/{install}\n"
        f"PYTHONPATH={program} venv/bin/python -m ci run --bundle {name}"
    )


def compress(chunks: Iterable[bytes], file: BinaryIO) -> None:
    """Write ``chunks`` as gzip, without a name or a time in it."""
    with gzip.GzipFile("", "wb", COMPRESSION_LEVEL, file, mtime=0) as archive:
        archive.writelines(chunks)


def _check_space(output: Path, sizes: Sequence[int]) -> None:
    if not output.parent.is_dir():
        raise UsageError(f"--output: there is no folder {output.parent}")
    # The largest image counts twice: as a temporary file, too.
    needed = int(LARGEST_SHARE * (sum(sizes) + max(sizes, default=0)))
    free = shutil.disk_usage(output.parent).free
    if free < needed:
        message = f"--output: {free:,} bytes are free in {output.parent}, up to {needed:,} needed"
        raise InfrastructureError(message, remedy="Make room, or name a file on another disk.")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The configuration's path in the bundle, and its files if the sources lack them."""

    path: str
    files: Mapping[str, Path]


def find_configuration(project: Project, request: RunRequest) -> Configuration:
    """Find the files of the configuration that the sources lack."""
    files = [project.path]
    for name in request.platforms:  # recipes and requirements, if the project has its own
        wanted = project.config.platforms[name]
        named = filter(None, (wanted.recipe, wanted.requirements))
        paths = [Path(os.path.normpath(project.folder / file)) for file in named]
        files += filter(Path.is_file, paths)
    listed = {request.source / name for name in source.files(request.source)}
    if listed.issuperset(files):
        place = Path("source", git_history.subfolder(request.source))
        return Configuration(path=str(place / project.path.relative_to(request.source)), files={})
    outside = [file for file in files if not file.is_relative_to(project.folder)]
    if outside:
        message = f"{outside[0]} is neither in the sources nor below {project.folder}"
        raise UsageError(message, remedy="Move that file, or the configuration.")
    return Configuration(
        path=names.CONFIG + project.path.name,
        files={str(file.relative_to(project.folder)): file for file in files},
    )


def site_settings(
    project: Project, request: RunRequest, configuration: Configuration
) -> tuple[str, list[str]]:
    """Return this site's file without secrets, and the settings that are left out."""
    # The configuration is packed unchanged, usually as a part of the sources.
    settings = project.config.network.model_dump(exclude_none=True)
    if secret := [name for name, value in settings.items() if "@" in str(value)]:
        message = f"{project.path}: network.{secret[0]} may hold a password, and would be packed"
        raise ConfigError(message, remedy=f"Move it to {SITE_FILE}, which is not packed.")
    found = project.network_settings()
    settings = {name: value for name, value in found.items() if value}
    secret = [name for name, value in settings.items() if "@" in value]
    # The bundle's own wheels replace any others, and are there at once.
    without = {*secret, "pip_find_links", "pip_no_index", "pip_timeout"}
    network = {n: value for n, value in settings.items() if n not in without}
    if "ca_bundle" in network:
        network["ca_bundle"] = os.path.relpath(names.CA_BUNDLE, Path(configuration.path).parent)
    bases = {name: project.base_image(name) for name in request.platforms}
    platforms = {name: {"base_image": base} for name, base in bases.items() if base}
    text = yaml.safe_dump({"network": network, "platforms": platforms})
    return text, [f"network.{name}: it may hold a password" for name in secret]
