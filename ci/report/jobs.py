"""The jobs of the platforms in the form that a CI system reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import yaml

TEMPLATE = ".platform"  # the job in .gitlab/platforms.yml that those of the platforms extend


class JobForm(StrEnum):
    """The CI system that reads the list."""

    JSON = "json"
    GITHUB = "github"
    GITLAB = "gitlab"
    JENKINS = "jenkins"


@dataclass(frozen=True, kw_only=True)
class PlatformJob:
    """The job of one platform."""

    platform: str
    title: str
    labels: Sequence[str]


def _json(jobs: Sequence[PlatformJob]) -> str:
    return json.dumps([{**vars(it), "labels": [*it.labels]} for it in jobs], indent=2) + "\n"


def _github(jobs: Sequence[PlatformJob]) -> str:
    """One line, as an output of a job must be; ``include`` is the matrix, and may be empty."""
    include = [{"platform": it.platform, "title": it.title, "runner": [*it.labels]} for it in jobs]
    return json.dumps({"include": include}) + "\n"


def _gitlab(jobs: Sequence[PlatformJob]) -> str:
    """Jobs that extend a template of the project, which has what all of them do."""
    pipeline: dict[str, object] = {
        "variables": {"PLATFORMS": ",".join(it.platform for it in jobs)},
    }
    for it in jobs:
        pipeline[f"build-{it.platform}"] = {
            "extends": TEMPLATE,
            "tags": [*it.labels],
            "variables": {"PLATFORM": it.platform},
        }
    return yaml.safe_dump(pipeline, sort_keys=False)


def _jenkins(jobs: Sequence[PlatformJob]) -> str:
    return "".join(f"{it.platform}\t{' && '.join(it.labels)}\n" for it in jobs)


FORMS: Mapping[JobForm, Callable[[Sequence[PlatformJob]], str]] = {
    JobForm.JSON: _json,
    JobForm.GITHUB: _github,
    JobForm.GITLAB: _gitlab,
    JobForm.JENKINS: _jenkins,
}
