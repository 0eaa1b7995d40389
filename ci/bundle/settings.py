"""The configuration that goes into a bundle, and what it may hold of the site's settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from ci import source
from ci.bundle import document as names
from ci.errors import ConfigError, UsageError
from ci.inputs import SITE_FILE, Project
from ci.network import network_settings
from ci.request import RunRequest


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Where the configuration lies in the bundle, and its files where the sources lack them."""

    path: str
    files: Mapping[str, Path]


def find_configuration(project: Project, request: RunRequest) -> Configuration:
    """Find out which files of the configuration the sources do not hold already."""
    files = [project.path, *_named_files(project, request)]
    listed = {request.source / name for name in source.files(request.source)}
    if listed.issuperset(files):
        return Configuration(path=f"source/{project.path.relative_to(request.source)}", files={})
    outside = [file for file in files if not file.is_relative_to(project.folder)]
    if outside:
        message = f"{outside[0]} lies neither in the sources nor below {project.folder}"
        raise UsageError(message, remedy="Move it, or the configuration.")
    return Configuration(
        path=names.CONFIG + project.path.name,
        files={str(file.relative_to(project.folder)): file for file in files},
    )


def _named_files(project: Project, request: RunRequest) -> Iterator[Path]:
    """Recipes and requirements, as far as they are the project's own."""
    for name in request.platforms:
        wanted = project.config.platforms[name]
        for file in filter(None, (wanted.recipe, wanted.requirements)):
            path = Path(os.path.normpath(project.folder / file))
            if path.is_file():
                yield path


def site_settings(
    project: Project, request: RunRequest, configuration: Configuration
) -> tuple[str, list[str]]:
    """Return this site's file without secrets, and what is left out of it."""
    _refuse_credentials(project)
    sections = (project.site.network, project.config.network, project.pip)
    found = network_settings(project.environ, *sections)
    settings = {name: value for name, value in found.items() if value}
    secret = [name for name, value in settings.items() if "@" in value]
    # The bundle's own wheels take the place of any others.
    network = {n: value for n, value in settings.items() if n not in (*secret, "pip_find_links")}
    if "ca_bundle" in network:
        network["ca_bundle"] = os.path.relpath(names.CA_BUNDLE, Path(configuration.path).parent)
    bases = {name: project.base_image(name) for name in request.platforms}
    platforms = {name: {"base_image": base} for name, base in bases.items() if base}
    text = yaml.safe_dump({"network": network, "platforms": platforms})
    return text, [f"network.{name}: it may hold a password" for name in secret]


def _refuse_credentials(project: Project) -> None:
    """The configuration goes in as it is, mostly as a part of the sources."""
    settings = project.config.network.model_dump(exclude_none=True)
    secret = [name for name, value in settings.items() if "@" in str(value)]
    if secret:
        message = f"{project.path}: network.{secret[0]} may hold a password, and would be packed"
        raise ConfigError(message, remedy=f"Move it to {SITE_FILE}, which is not.")
