"""Wheels and source distributions that were made elsewhere, in place of what a run would build."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from pydantic import BaseModel, ConfigDict

from ci.errors import UsageError
from ci.model.plan import GivenDistribution
from ci.model.platforms import PLATFORMS
from ci.plan.config import BUILD_OPTIONS, THIS_PROJECT
from ci.protocol.distributions import SDIST, WHEEL, WHEEL_SUFFIX, is_distribution
from ci.protocol.job import Column, StagePlan
from ci.util.text import join_names

WHEEL_OPTION, SDIST_OPTION = "--wheel", "--sdist"
MADE = "dist"  # the folder of wheels of a project that configures none
BUILD_WHEEL = "wheel"  # the stage that builds a given source distribution
ANY_PLATFORM = "any"
_MACHINES = "x86_64|i686|aarch64|armv7l|ppc64le|s390x|riscv64|loongarch64"
# As engines and Go name them.
_OTHER_NAMES = {"amd64": "x86_64", "arm64": "aarch64", "386": "i686", "arm": "armv7l"}
LINUX = re.compile(rf"(linux|manylinux|musllinux)\w*?_(?P<machine>{_MACHINES})")


class GivenFile(BaseModel):
    """A file of the command line, as the request of the run has it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    sha256: str
    platform: str | None = None
    """The only platform that it is for."""

    @property
    def option(self) -> str:
        return WHEEL_OPTION if self.path.suffix == WHEEL_SUFFIX else SDIST_OPTION


def read_given(wheels: Sequence[str], sdist: str | None) -> tuple[GivenFile, ...]:
    """Return the files that ``--wheel`` and ``--sdist`` name.

    A wheel may begin with ``PLATFORM=``. Raises ``UsageError`` for both options, and for what is no
    wheel or source distribution.
    """
    if wheels and sdist:
        message = f"{SDIST_OPTION}: cannot be combined with {WHEEL_OPTION}: a run installs one"
        raise UsageError(message, remedy=f"Leave out {SDIST_OPTION} or {WHEEL_OPTION}.")
    found = [_read(it, WHEEL_OPTION) for it in wheels]
    return (*found, *([_read(sdist, SDIST_OPTION)] if sdist else ()))


def _read(text: str, option: str) -> GivenFile:
    platform, separator, rest = text.partition("=")
    named = platform.lower() if separator and platform.lower() in PLATFORMS else None
    path = Path(rest if named else text).absolute()
    is_wheel = path.suffix == WHEEL_SUFFIX
    if is_wheel is not (option == WHEEL_OPTION) or not is_distribution(path.name):
        expected = "a file NAME.whl" if option == WHEEL_OPTION else "a file NAME.tar.gz"
        raise UsageError(f"{option}: got {path.name}, expected {expected}")
    if is_wheel:
        wheel_tags(path.name)
    return GivenFile(path=path, sha256=digest_of(path, option), platform=named)


def digest_of(path: Path, option: str) -> str:
    """Return the SHA-256 of a file; raises ``UsageError`` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{option}: {path}: {error.strerror}, expected a file") from None


def wheel_tags(name: str) -> frozenset[Tag]:
    """Return the tags in a wheel's name; raises ``UsageError`` for a name that is malformed."""
    try:
        return parse_wheel_filename(name)[3]
    except InvalidWheelFilename:
        message = f"{WHEEL_OPTION}: {name}: the name is malformed"
        expected = "expected NAME-VERSION-PYTHON-ABI-PLATFORM.whl"
        raise UsageError(
            f"{message}, {expected}", remedy="Give it the name it was built with."
        ) from None


def given_to(platform: str, files: Sequence[GivenFile]) -> GivenDistribution | None:
    """Return the file for a platform; ``None``: none is given.

    A file is for the platform before its ``=``, else for that in its name, as in
    ``ops-1.0+nvidia-cp310-abi3-linux_x86_64.whl``, else for any platform.

    Raises:
        UsageError: No file is for this platform, or several are; or it is for another system.
    """
    if not files:
        return None
    option = files[0].option
    fitting = [it for it in files if _platforms(it) == {platform}]
    fitting = fitting or [it for it in files if not _platforms(it)]
    names = [it.path.name for it in fitting or files]
    if len(fitting) != 1:
        count = "no file" if not fitting else f"{len(fitting)} files"
        raise UsageError(
            f"{option}: platform {platform}: got {count} for it: {join_names(names)}; expected one",
            remedy=f"Name the platform of each: {option} {platform}={shlex.quote(names[0])}",
        )
    file = fitting[0]
    if digest_of(file.path, option) != file.sha256:
        message = f"{option}: {file.path} has changed since the run began"
        raise UsageError(message, remedy="Undo the change, or start a new run.")
    tags = wheel_tags(file.path.name) if option == WHEEL_OPTION else frozenset()
    if tags and not any(it.platform == ANY_PLATFORM or LINUX.fullmatch(it.platform) for it in tags):
        raise _misfit(file.path.name, tags, "a platform of Linux")
    return GivenDistribution(
        path=file.path, sha256=file.sha256, size_bytes=file.path.stat().st_size
    )


def _platforms(file: GivenFile) -> set[str]:
    """Return the platforms that a file is for; empty: any."""
    if file.platform is not None:
        return {file.platform}
    return set(re.split(r"[^a-z]+", file.path.name.lower())) & set(PLATFORMS)


def refuse_misfit(given: GivenDistribution, fitting: Iterable[Tag], python: str) -> None:
    """Raise ``UsageError`` for a wheel with none of the tags that a Python supports."""
    if given.path.suffix == WHEEL_SUFFIX:
        tags = wheel_tags(given.path.name)
        if tags.isdisjoint(fitting):
            raise _misfit(given.path.name, tags, python)


def refuse_machine(given: GivenDistribution, reported: object) -> None:
    """Raise ``UsageError`` for a wheel of other machines than an engine's, such as ``x86_64``."""
    machine = _OTHER_NAMES.get(str(reported), str(reported))
    if given.path.suffix == WHEEL_SUFFIX and machine in _MACHINES.split("|"):
        tags = wheel_tags(given.path.name)
        found = [LINUX.fullmatch(it.platform) for it in tags]
        if all(match is not None and match["machine"] != machine for match in found):
            raise _misfit(given.path.name, tags, f"the machine of the engine, {machine}")


def _misfit(name: str, tags: Iterable[Tag], wanted: str) -> UsageError:
    shown = join_names(sorted(map(str, tags)))
    return UsageError(
        f"{WHEEL_OPTION}: {name}: got the tags {shown}, expected some that fit {wanted}",
        remedy="Name a wheel that was built for it.",
    )


def stages_with(
    given: GivenDistribution, stages: Sequence[StagePlan], made: str
) -> tuple[StagePlan, ...]:
    """Return the stages of a run that installs a file in place of what its stages build.

    The stage that installs has ``{wheel}`` in its command, or is the first ``pip install`` of the
    project itself. The stages before it that count as build are left out. A source distribution
    becomes a wheel first, in the folder ``made``.
    """
    place = next((at for at, it in enumerate(stages) if _installs_wheel(it)), None)
    if place is None:
        place = next((at for at, it in enumerate(stages) if _installs_project(it)), None)
    option = WHEEL_OPTION if given.path.suffix == WHEEL_SUFFIX else SDIST_OPTION
    if place is None:
        raise UsageError(
            f"{option}: got no stage that installs the project, expected one with {WHEEL}, or with"
            " `pip install .`",
            remedy=f"Use {WHEEL} in the command of the stage that installs it.",
        )
    install = replace(stages[place], command=tuple(_with_wheel(stages[place].command)))
    building = [it for it in stages[:place] if it.column is Column.BUILD_INSTALL]
    built = () if option == WHEEL_OPTION else (_wheel_stage(building, stages[place], made),)
    kept = [it for it in stages[:place] if it.column is not Column.BUILD_INSTALL]
    return (*kept, *built, install, *stages[place + 1 :])


def _wheel_stage(building: Sequence[StagePlan], install: StagePlan, made: str) -> StagePlan:
    """Return the stage that makes a wheel of the source distribution."""
    for stage in building:
        if "wheel" in stage.command and "." in stage.command:
            words = (SDIST if word == "." else word for word in stage.command)
            return replace(stage, command=tuple(words))
    pip = install.command[: install.command.index("install")]
    options = (word for word in install.command if BUILD_OPTIONS.fullmatch(word))
    command = (*pip, "wheel", SDIST, "--no-deps", f"--wheel-dir={made}", *options)
    return replace(install, name=BUILD_WHEEL, command=command)


def _installs_wheel(stage: StagePlan) -> bool:
    return any(WHEEL in word for word in stage.command)


def _installs_project(stage: StagePlan) -> bool:
    has_project = any(map(THIS_PROJECT.fullmatch, stage.command))
    return has_project and "install" in stage.command and "-e" not in stage.command


def _with_wheel(command: Sequence[str]) -> Iterator[str]:
    for word in command:
        match = THIS_PROJECT.fullmatch(word)
        yield f"{WHEEL}{match['extras'] or ''}" if match else word
