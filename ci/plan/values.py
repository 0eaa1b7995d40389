"""The values of configurations: their types, and the checks of these."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints
from pydantic_core import PydanticCustomError

from ci.model.plan import RESERVED_VARIABLES
from ci.model.platforms import GROUPS, PLATFORMS
from ci.protocol.agent_files import (
    BENCHMARKS,
    CACHE_LOG,
    ENGINE_EVENTS,
    ENVIRONMENT,
    EVENTS,
    JUNIT,
    PYTEST_LOG,
)

# Files that the agent and the engines write into a platform's results, in addition to stage logs.
RECORDS = frozenset(
    {EVENTS, ENGINE_EVENTS, PYTEST_LOG, JUNIT, ENVIRONMENT, CACHE_LOG}
    | {"environment.tmp", "host.lock"}
)
# Begin the names of further ones.
PARTS = ("pytest.rerun-", "pytest.shard-", "junit.shard-", BENCHMARKS)
SHELL_OPERATORS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})


class Model(BaseModel):
    """Base of every configuration model: immutable, strictly typed, no unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, strict=True, allow_inf_nan=False
    )


def expected_value(what: str, *at: str | int, known: Iterable[str] = ()) -> PydanticCustomError:
    """Return the error of a value other than ``what``, at ``at`` below the checked value.

    ``known`` are the words that a misspelled value may have meant.
    """
    return PydanticCustomError("expected", what, {"at": at, "known": known})


def _check_command(command: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise expected_value(f"a command line ({error})") from None
    if not words:
        raise expected_value("a command line with at least one word")
    for word in words:
        if word in SHELL_OPERATORS:
            raise expected_value(f"one command: no shell runs it, so '{word}' has no meaning here")
    return command


def _check_variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise expected_value("a variable's name of letters, digits and underscores")
    if name in RESERVED_VARIABLES:
        what = "another variable: this one is reserved, tests read the platform from it"
        raise expected_value(what)
    return name


def _check_variable_pattern(pattern: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", pattern):
        raise expected_value("a variable's name, or the beginning of names and a '*'")
    return pattern


def _check_workspace_path(path: str) -> str:
    parts = PurePosixPath(path)
    if not path or parts.is_absolute() or ".." in parts.parts:
        raise expected_value("a relative path without '..'")
    return path


def _check_container_path(path: str) -> str:
    parts = PurePosixPath(path)
    # A comma would end the value in the options of the docker command.
    if not parts.is_absolute() or ".." in parts.parts or len(parts.parts) < 2 or "," in path:
        raise expected_value("an absolute path other than '/', without '..' and ','")
    return str(parts)


def _check_pattern(path: str) -> str:
    if any("**" in part and part != "**" for part in PurePosixPath(path).parts):
        raise expected_value("'**' only as a complete part of the path")
    return path


def _check_results(path: str) -> str:
    if not PurePosixPath(path).parts or set(path) & set("*?["):
        raise expected_value("the path of a file or folder in the workspace, without a pattern")
    return path


def _check_artifact(name: str) -> str:
    if name in RECORDS or name.endswith(".log") or name.startswith(PARTS):
        raise expected_value("another name: the run writes a file of this name itself")
    return name


def _check_platform(name: str) -> str:
    if name not in PLATFORMS:
        names = ", ".join(f"'{platform}'" for platform in PLATFORMS)
        what = f"one of {names}, or a new one with a file in ci/platforms"
        raise expected_value(what, known=PLATFORMS)
    return name


def _check_platforms(name: str) -> str:
    return name if name in GROUPS else _check_platform(name)


def members(names: Iterable[str]) -> tuple[str, ...]:
    """Return the platforms and those of the groups, each once."""
    return tuple(dict.fromkeys(each for name in names for each in GROUPS.get(name, (name,))))


def _check_package(name: str) -> str:
    # apt-get removes a package whose name is followed by "-".
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9+._-]*[A-Za-z0-9+])?", name):
        raise expected_value("only a package's name: letters, digits, '+', '-', '.' and '_'")
    return name


# Names become parts of file names, which have at most 255 bytes.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.-]*$", max_length=64)]
Command = Annotated[str, AfterValidator(_check_command)]
ArtifactName = Annotated[Name, AfterValidator(_check_artifact)]
VariableName = Annotated[str, AfterValidator(_check_variable)]
Environment = dict[VariableName, str]
VariablePattern = Annotated[str, AfterValidator(_check_variable_pattern)]
PlatformName = Annotated[str, AfterValidator(_check_platform)]
PlatformOrGroup = Annotated[str, AfterValidator(_check_platforms)]
IMAGE_REFERENCE = r"^[\w][\w./:@-]*$"
# As GitHub, GitLab and Jenkins have them; other characters are operators in Jenkins' expressions.
RunnerLabel = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$")]
ImageReference = Annotated[str, StringConstraints(pattern=IMAGE_REFERENCE)]
WorkspacePath = Annotated[str, AfterValidator(_check_workspace_path)]
ContainerPath = Annotated[str, AfterValidator(_check_container_path)]
ArtifactPath = Annotated[WorkspacePath, AfterValidator(_check_pattern)]
ResultsPath = Annotated[WorkspacePath, AfterValidator(_check_results)]
ConfigPath = Annotated[str, StringConstraints(pattern=r"^[^/]")]
# A team, an account or an address of mail.
OwnerName = Annotated[str, StringConstraints(pattern=r"^[^\s,;]{1,100}$")]
GroupName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
# The longest name in Debian 12 has 75 characters.
PackageName = Annotated[str, StringConstraints(max_length=128), AfterValidator(_check_package)]
