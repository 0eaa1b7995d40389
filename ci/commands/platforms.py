"""``python -m ci platforms``."""

from __future__ import annotations

import argparse
import json
import os

from ci.commands.options import add_config, add_format, config_file
from ci.errors import ExitCode
from ci.model.platforms import PLATFORMS
from ci.model.results import title
from ci.plan.project import load_project
from ci.util.terminal import show


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    add_config(parser)
    add_format(parser, "table", "json")


def execute(options: argparse.Namespace) -> int:
    """List the configured platforms, then the supported ones without a configuration."""
    project = load_project(config_file(options), os.environ)
    names = list(project.config.platforms)
    if options.format == "json":
        show(json.dumps(names))
        return ExitCode.PASSED
    for name in names:  # iluvatar: Iluvatar, torch device cuda, no base image: host engine only
        platform, wanted = PLATFORMS[name], project.config.platforms[name]
        label = title(wanted.label or platform.label, name, simulated=wanted.simulated)
        bases = (project.base_image(name), wanted.base_image, platform.base_image)
        host_only = "" if any(bases) else ", no base image: host engine only"
        show(f"{name}: {label}, torch device {platform.torch_device}{host_only}")
    if others := [name for name in PLATFORMS if name not in names]:
        show(f"supported, but not configured in {project.path.name}: {', '.join(others)}")
    return ExitCode.PASSED
