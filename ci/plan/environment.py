"""Another environment for a platform: requirements, one requirement, or a base image."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ci.errors import UsageError
from ci.plan.project import Project, requirements_file
from ci.plan.values import IMAGE_REFERENCE
from ci.util.requirements import read_lock

_REQUIREMENT = re.compile(r"[=<>~!]| @ ")  # none of them is in the reference of an image


class EnvironmentKind(StrEnum):
    """What another environment is made of."""

    FILE = "requirements file"
    REQUIREMENT = "requirement"
    IMAGE = "base image"


@dataclass(frozen=True, kw_only=True)
class EnvironmentChoice:
    """What replaces a part of a platform's environment."""

    kind: EnvironmentKind
    text: str
    """The path of the file, the requirement, or the reference of the image."""

    def applied(self, project: Project, platform: str, folder: Path) -> Project:
        """Return the project with this environment; a file of it is written to ``folder``.

        A requirement replaces those of the same distribution in the platform's own file.
        """
        if self.kind is EnvironmentKind.IMAGE:
            variable = f"INFINI_CI_BASE_IMAGE_{platform.upper()}"  # it precedes the site file
            return replace(project, environ={**project.environ, variable: self.text})
        path = Path(self.text)
        if self.kind is EnvironmentKind.REQUIREMENT:
            file = requirements_file(project, platform)
            own = file.read_text("utf-8", "surrogateescape")
            if read_lock(own) is not None:
                message = f"'{self.text}': {file}: the requirements of {platform} are a lock"
                remedy = "Name a requirements file or a lock in place of the requirement."
                raise UsageError(f"{message}, which a requirement cannot change", remedy=remedy)
            path = folder / f"requirements-{platform}.txt"
            path.write_text(with_requirement(own, self.text), "utf-8", "surrogateescape")
        settings = project.config.platforms[platform]
        settings = settings.model_copy(update={"requirements": str(path)})
        platforms = {**project.config.platforms, platform: settings}
        config = project.config.model_copy(update={"platforms": platforms})
        return replace(project, config=config)


def read_choice(text: str, option: str) -> EnvironmentChoice:
    """Read the value of an option; raises ``UsageError`` if it names no environment."""
    if Path(text).is_file():
        return EnvironmentChoice(kind=EnvironmentKind.FILE, text=str(Path(text).resolve()))
    if _REQUIREMENT.search(text):
        try:
            Requirement(text)
        except InvalidRequirement as error:
            reason = str(error).splitlines()[0]
            message = f"{option}: got '{text}', expected a requirement: {reason}"
            raise UsageError(message, remedy=f"Write it as pip does: {option} torch==2.13.0") from (
                None
            )
        return EnvironmentChoice(kind=EnvironmentKind.REQUIREMENT, text=text)
    if re.fullmatch(IMAGE_REFERENCE, text) and not text.endswith(".txt"):
        return EnvironmentChoice(kind=EnvironmentKind.IMAGE, text=text)
    message = (
        f"{option}: got '{text}', expected an existing requirements file, a requirement or the"
    )
    remedy = f"Correct the path, or write a requirement as pip does: {option} torch==2.13.0"
    raise UsageError(f"{message} reference of a base image", remedy=remedy)


def with_requirement(requirements: str, wanted: str) -> str:
    """Return the text of a requirements file with ``wanted`` in place of its distribution's."""
    name = canonicalize_name(Requirement(wanted).name)
    kept = [line for line in requirements.splitlines() if _distribution(line) != name]
    return "\n".join([*kept, wanted]) + "\n"


def _distribution(line: str) -> str | None:
    """Return the distribution that a line of a requirements file names."""
    try:
        return canonicalize_name(Requirement(line.partition(" #")[0].strip()).name)
    except InvalidRequirement:  # an option, a comment, a path
        return None
