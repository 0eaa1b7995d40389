"""Plans as a script that submits them to Slurm; its template is ``slurm.sh.j2``.

Each job is a whole ``run`` of one platform on a node, with an engine of that node. The results lie
in a folder that the nodes share, and the script imports them when all jobs have ended.

The tasks of an array have equal requests. So platforms that request the same are one array, and
platforms with other devices, limits or partitions are another one.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.model.plan import PREPARATION_S, RunPlan
from ci.plan.planning import RunOptions
from ci.plan.project import Project, site_file
from ci.plan.site import SlurmPlatform
from ci.util.files import PROGRAM_ROOT
from ci.util.git import is_tracked, top_folder

SYSTEM = "slurm"
MEBIBYTE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What all jobs have in common; ``folder`` has the sources, ``results`` those of all runs."""

    project: Project
    commit: str
    folder: Path
    results: Path
    options: RunOptions


@dataclass(frozen=True, kw_only=True)
class JobArray:
    """Platforms with the same request; each is a task of one array."""

    request: tuple[str, ...]
    platforms: tuple[str, ...]


def script(
    submission: Submission, plans: Sequence[RunPlan], settings: Mapping[str, SlurmPlatform]
) -> str:
    """Return a shell script that submits the plans, waits, and prints one table."""
    import jinja2  # takes 0.05 s, and only this needs it

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - a shell script, not HTML
    )
    environment.filters.update(quote=lambda value: shlex.quote(str(value)), words=" ".join)
    top = top_folder(submission.folder)
    project, config = submission.project, submission.project.path
    # The configuration belongs to the commit, unless it describes another project's sources.
    is_inside = config.is_relative_to(top) and is_tracked(config)
    site = site_file(config, os.environ)
    template = environment.get_template("slurm.sh.j2")
    return template.render(
        submission=submission,
        plans=plans,
        project=project.config.project,
        arrays=list(job_arrays(plans, settings)),
        program=PROGRAM_ROOT,
        python=sys.executable,
        top=top,
        below=submission.folder.relative_to(top),
        config=config.relative_to(top) if is_inside else config,
        site=site.absolute() if site.exists() else None,
    )


def job_arrays(
    plans: Sequence[RunPlan], settings: Mapping[str, SlurmPlatform]
) -> Iterator[JobArray]:
    """Group the platforms by what their jobs request."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for plan in plans:
        request = tuple(request_options(plan, settings[plan.platform]))
        groups.setdefault(request, []).append(plan.platform)
    for request, platforms in groups.items():
        yield JobArray(request=request, platforms=tuple(platforms))


def request_options(plan: RunPlan, own: SlurmPlatform) -> Iterator[str]:
    """Yield the options of sbatch for a plan; those of the site come last and override others."""
    yield f"--time={math.ceil((plan.longest_s + PREPARATION_S) / 60)}"  # minutes
    if plan.container.memory_bytes:
        yield f"--mem={math.ceil(plan.container.memory_bytes / MEBIBYTE)}M"
    if plan.devices:
        yield f"--gres={own.gres or plan.devices.facts.gres}:{plan.devices.count * plan.shards}"
    yield from own.options
