"""``python -m ci matrix``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from ci.commands.options import add_config, add_format, config_file
from ci.errors import ExitCode
from ci.model.platforms import PLATFORMS
from ci.plan.project import Project, load_project, site_file
from ci.report.jobs import FORMS, JobForm, PlatformJob
from ci.util.terminal import complain, show


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Print the platforms that have `runner_labels` in ci.site.yaml, with these labels, for a"
        " CI system: a JSON matrix for GitHub, Gitea and Forgejo, the jobs of a child pipeline for"
        " GitLab, or for Jenkins a line `PLATFORM<tab>LABEL && LABEL` for each platform."
    )
    add_config(parser)
    add_format(parser, *JobForm)


def execute(options: argparse.Namespace) -> int:
    """List the jobs of the platforms that have a runner."""
    project = load_project(config_file(options), os.environ)
    jobs = [*_jobs(project)]
    if not jobs:
        site = site_file(project.path, project.environ)
        complain(f"no platform has `runner_labels` in {site}: there is nothing to run")
    show(FORMS[JobForm(options.format)](jobs), end="")
    return ExitCode.PASSED


def _jobs(project: Project) -> Iterator[PlatformJob]:
    for name, wanted in project.config.platforms.items():
        if labels := project.site.platform_settings(name).runner_labels:
            title = wanted.label or PLATFORMS[name].label
            yield PlatformJob(platform=name, title=title, labels=labels)
