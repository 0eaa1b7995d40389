"""``python -m ci kit``."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from ci.commands.options import add_config, add_format, add_platform, add_source, config_file
from ci.errors import ExitCode
from ci.model.plan import EngineKind
from ci.plan.planning import RunOptions
from ci.plan.project import chosen_platforms, load_here
from ci.plan.request import new_request, plan_request
from ci.run.progress import Progress
from ci.upkeep.kit.make import KitMaker
from ci.upkeep.kit.steps import steps_of
from ci.upkeep.kit.wheels import check_versions, own_version
from ci.util.files import files_below
from ci.util.terminal import complain, show


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Make a folder for an engineer at a machine without a network: the sources, this program,"
        " the wheels of both, and one command, `./run`, that carries out all steps on the host"
        " engine and packs a report. `import` reads it."
    )
    add_platform(parser, "the platform of the machine")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", required=True, help="the folder to make"
    )
    parser.add_argument(
        "--python",
        dest="pythons",
        metavar="VERSION",
        action="append",
        type=_version,
        help="collect wheels for this version of Python, such as 3.12. The machine needs one of"
        f" at least 3.11, and that of its vendor's torch. Repeatable (default: {own_version()})",
    )
    parser.add_argument(
        "--wheels",
        metavar="REQUIREMENT",
        action="append",
        default=[],
        help="also collect this package. Needed for dependencies that the project's build backend"
        " finds itself. Repeatable",
    )
    add_format(parser, "table", "json")
    add_source(parser)
    add_config(parser)


def _version(text: str) -> str:
    if re.fullmatch(r"3\.\d{1,2}", text):
        return text
    raise argparse.ArgumentTypeError(f"got '{text}', expected a version such as 3.12")


def execute(options: argparse.Namespace) -> int:
    """Make the kit, and print what to do with it."""
    pythons = tuple(dict.fromkeys(options.pythons or [own_version()]))
    check_versions(pythons)
    project = load_here(config_file(options))
    output: Path = options.output.absolute()
    with TemporaryDirectory(prefix="infini-ci-kit-") as folder, Progress() as progress:
        request = new_request(
            project,
            chosen_platforms(project.config, [options.platform]),
            source_folder=options.source or project.source,
            results=Path(folder),
            options=RunOptions(engine=EngineKind.HOST),
        )
        [plan] = plan_request(project, request, Path(folder))
        maker = KitMaker(
            project=project,
            request=request,
            plan=plan,
            pythons=pythons,
            wheels=options.wheels,
            progress=progress,
        )
        document, left_out = maker.make(output)
    for name in left_out:
        complain(f"not packed: {name}")
    size = sum(path.stat().st_size for path in files_below(output))
    steps = [it.name for it in steps_of(document)]
    if options.format == "json":
        content = {"kit": str(output), "bytes": size, "steps": steps, "left_out": left_out}
        show(json.dumps(content, indent=2))
    else:
        show(f"{options.output}: {size:,} bytes, for Python {', '.join(pythons)}.")
        show(f"Copy it to the machine, and run there: ./run   (steps: {' '.join(steps)})")
    return ExitCode.PASSED
