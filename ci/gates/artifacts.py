"""Whether the platforms of a release tested one set of wheels and source distributions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)

from ci.model.results import Distribution
from ci.util.text import join_names

WHEEL = ".whl"


def describe_distributions(files: Iterable[Distribution]) -> str:
    """``a-1.2-py3-none-any.whl (built)``: a wheel that the run was given may be another's."""
    named = dict.fromkeys(f"{it.name} ({'given' if it.given else 'built'})" for it in files)
    return join_names([*named])


def artifact_faults(platforms: Mapping[str, Sequence[Distribution]]) -> list[str]:
    """What contradicts itself between platforms, of the installed wheels and of the sdists.

    Each platform may build a wheel of its own, also with a local version (``1.2+cu130``). A given
    file, and a source distribution, must be the same file everywhere.
    """
    versions: dict[str, dict[str, list[str]]] = {}
    digests: dict[str, dict[str, list[str]]] = {}
    faults = []
    for platform, files in platforms.items():
        for it in files:
            is_wheel = it.name.endswith(WHEEL)
            if is_wheel and not (it.installed or it.given):
                continue
            if not is_wheel or it.given:
                digests.setdefault(it.name, {}).setdefault(it.sha256, []).append(platform)
            try:
                project, version = _project_and_version(it.name)
            except (InvalidWheelFilename, InvalidSdistFilename):
                faults.append(f"{platform}: {it.name} is no name of a wheel or an sdist")
                continue
            versions.setdefault(project, {}).setdefault(version, []).append(platform)
    faults += _contradictions("version", versions)
    faults += _contradictions("SHA-256", digests)
    return faults


def _contradictions(what: str, known: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterator[str]:
    for name, values in known.items():
        if len(values) > 1:
            shown = (f"{it[:12]} on {', '.join(dict.fromkeys(on))}" for it, on in values.items())
            yield f"{name}: {what} {' and '.join(shown)}"


def _project_and_version(name: str) -> tuple[str, str]:
    """The normalized name of a file's project, and its version without the local part."""
    if name.endswith(WHEEL):
        project, version, _, _ = parse_wheel_filename(name)
    else:
        project, version = parse_sdist_filename(name)
    return project, version.public
