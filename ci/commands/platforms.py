"""``python -m ci platforms``."""

from __future__ import annotations

import argparse
import json
import os

from ci.commands.options import add_config, add_format
from ci.errors import ExitCode
from ci.model.platforms import PLATFORMS, Platform
from ci.model.results import title
from ci.plan.project import Project, load_project
from ci.util.files import REPOSITORY
from ci.util.invocation import CONFIG_FILE


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.set_defaults(command=_platforms)
    add_config(parser)
    add_format(parser, "table", "json")


def _platforms(options: argparse.Namespace) -> int:
    project = load_project(options.config or REPOSITORY / CONFIG_FILE, os.environ)
    names = list(project.config.platforms)
    if options.format == "json":
        print(json.dumps(names))
        return ExitCode.PASSED
    for name in names:
        print(_described(project, PLATFORMS[name]))
    others = [name for name in PLATFORMS if name not in names]
    if others:
        print(f"known, and not in {project.path.name}: {', '.join(others)}")
    return ExitCode.PASSED


def _described(project: Project, platform: Platform) -> str:
    """``iluvatar: Iluvatar, torch device cuda, no base image: host engine only``."""
    wanted = project.config.platforms[platform.name]
    label = title(wanted.label or platform.label, simulated=wanted.simulated)
    bases = (project.base_image(platform.name), wanted.base_image, platform.base_image)
    host_only = "" if any(bases) else ", no base image: host engine only"
    return f"{platform.name}: {label}, torch device {platform.torch_device}{host_only}"
