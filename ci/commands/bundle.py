"""``python -m ci bundle``."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from ci.commands.options import add_config, add_format, add_platforms, add_source, config_file
from ci.engines import ImageEngine
from ci.engines.select import select_engine
from ci.errors import ExitCode, UsageError
from ci.model.plan import RunPlan
from ci.plan.planning import RunOptions
from ci.plan.project import chosen_platforms, load_here
from ci.plan.request import new_request, plan_request
from ci.run.progress import Progress
from ci.upkeep.bundle.pack import Packer, commands
from ci.util.terminal import complain, show


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    add_platforms(parser, "platforms to pack", nargs="+")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", required=True, help="path of the bundle to write"
    )
    parser.add_argument("--engine", metavar="ENGINE", help="the engine that stores the images")
    parser.add_argument(
        "--wheels",
        metavar="REQUIREMENT",
        action="append",
        default=[],
        help="also pack this package. Needed for packages that `pip install` in the stages does not"
        " list, such as the extra requirements of a build backend. Repeatable",
    )
    add_format(parser, "table", "json")
    add_source(parser)
    add_config(parser)


def execute(options: argparse.Namespace) -> int:
    """Pack platforms into one file and print the commands that run it."""
    project = load_here(config_file(options))
    chosen = chosen_platforms(project.config, options.platforms)
    output = options.output.absolute()
    with (
        TemporaryDirectory(prefix="infini-ci-bundle-") as folder,
        Progress() as progress,
        ExitStack() as engines,
    ):
        request = new_request(
            project,
            chosen,
            source_folder=options.source or project.source,
            results=Path(folder),
            options=RunOptions(engine=options.engine or "auto"),
        )
        plans = plan_request(project, request, Path(folder))
        packer = Packer(
            project=project,
            request=request,
            connect=partial(_connect, engines),
            wheels=options.wheels,
            progress=progress,
            folder=Path(folder),
        )
        document = packer.pack(plans, output)
    for name in document.left_out:
        complain(f"not packed: {name}")
    size = output.stat().st_size
    if options.format == "json":
        content = {"bundle": str(output), "bytes": size, "commands": commands(output).splitlines()}
        show(json.dumps({**content, "left_out": document.left_out}, indent=2))
    else:
        show(f"{options.output}: {size:,} bytes. Run it on the other machine:\n")
        show(commands(output))
    return ExitCode.PASSED


def _connect(engines: ExitStack, plan: RunPlan) -> ImageEngine:
    engine = engines.enter_context(closing(select_engine(plan.engine)))
    if engine.capabilities.images:
        return cast(ImageEngine, engine)
    got = f"got the {engine.name} engine, which has no images; expected Docker"
    raise UsageError(
        f"bundle: {plan.platform}: {got}", remedy="Start a Docker Engine: docker/start-engine."
    )
