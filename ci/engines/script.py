"""A plan as a script that does what a run does: ``--dry-run``.

The script, whose text is in ``script.sh.j2``, is for ``sh``, to be run from a file or pasted. All
of it is one subshell: a failing command ends the script, and never the shell that it was pasted
into. Passwords are not in it: where a setting holds one, the script takes the setting from a
variable of the same name.
"""

from __future__ import annotations

import base64
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from docker.types import Ulimit

from ci.engines import job
from ci.engines.devices import PROBE, FoundFiles, exposure_of, lease_volume
from ci.engines.images import BASE_DIGEST_LABEL, BASE_LABEL, image_labels
from ci.engines.workfolder import PIP_INSTALL
from ci.model.job import StagePlan
from ci.model.plan import CONTAINER_WHEELS, Exposure, ImagePlan, RunPlan
from ci.plan import bundle
from ci.util.files import REPOSITORY
from ci.util.text import mask_credentials

# Where the SDK's name of an option is not the command line's.
FLAGS = {
    "devices": "--device",
    "ulimits": "--ulimit",
    "labels": "--label",
    "environment": "--env",
    "build_arguments": "--build-arg",
    "network_mode": "--network",
    "mem_limit": "--memory",
    "memswap_limit": "--memory-swap",
    "volumes": "--volume",
}
WIDTH = 80  # characters; a longer command gets a line for each of its words
WHAT = "# the commands of a run; its verdict, table and results.json are not part of it"
MASKED = "# *** below hides a password: put it there before you run this"
# A newline in a quotation ends no word: until the script is complete it is this, which no shell
# takes, and which no file has that is written as text.
NEWLINE = "\0"


def work_folder(plan: RunPlan) -> Path:
    """The temporary folder of the script; removed at its end."""
    return Path(tempfile.gettempdir(), f"infini-ci-{plan.run_id}-{plan.platform}")


def describe_docker(plan: RunPlan, engine: Mapping[str, str]) -> str:
    """Return the script of a run in a container.

    ``engine`` are the variables that lead the docker command to the engine.
    """
    image, container, devices = plan.needed_image, plan.container, plan.devices
    settings = {**plan.network.environment, **image.build_arguments, **plan.environment}
    secrets = {name: value for name, value in settings.items() if _is_secret(value)}
    options = job.container_options(plan, FoundFiles(files=()))  # the script looks for them
    device_files: dict[str, Sequence[str]] = {}
    if devices is not None and exposure_of(devices) is Exposure.FILES:
        device_files = {
            "--device %n:%n:rw": devices.facts.files,
            "--group-add %g": devices.facts.files,
            "--volume %n:%n:ro": devices.facts.mounts,
        }
    given = {
        name: f'"$repository"/{PROBE.relative_to(REPOSITORY)}'
        if path == PROBE
        else shlex.quote(str(path))
        for name, path in job.container_files(plan).items()
    }
    return _script(
        plan,
        job.container_job(plan),
        variables={"name": container.name, "image": image.tag},
        exports={**engine, **secrets},
        image=image,
        context=[] if image.archive else list(_context(plan, image)),
        # What a later run knows the image by.
        image_labels={name: text for name, text in image_labels(plan, "", "").items() if text},
        base_label=BASE_LABEL,
        base_digest_label=BASE_DIGEST_LABEL,
        environment=options.pop("environment"),
        options=options,
        device_files=device_files,
        lease_volume=devices and lease_volume(devices),
        volume_labels=job.volume_labels(plan),
        command=(*image.entry, *job.COMMAND),
        workspace=container.workspace,
        owner=container.user,
        files={job.AGENT: '"$work/agent.pyz"', job.JOB: '"$work/job.json"', **given},
        folders=job.container_folders(plan),
        bundle=bundle,
        container_wheels=CONTAINER_WHEELS,
    )


def describe_host(plan: RunPlan, environment: Mapping[str, str], *, unset: Iterable[str]) -> str:
    """Return the script of a run on this machine.

    ``environment`` is what the stages get on top of the shell's, without the variables ``unset``.
    """
    return _script(
        plan,
        job.host_job(plan, work_folder(plan)),
        on_host=True,
        exports=environment,
        unset=sorted(unset),
        pip_install=shlex.join(PIP_INSTALL),
        workspace=job.WORKSPACE,
        owner="0",
    )


def _script(
    plan: RunPlan,
    document: bytes,
    *,
    variables: Mapping[str, str] | None = None,
    on_host: bool = False,
    **values: Any,
) -> str:
    import jinja2  # 0.05 s, which no run has to wait for

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - a script, not HTML
    )
    environment.filters.update(
        command=_command, masked=mask_credentials, quote=_quote, words=_words
    )
    text = environment.get_template("script.sh.j2").render(
        plan=plan,
        on_host=on_host,
        variables={
            "repository": REPOSITORY,
            "python": plan.host.python,
            "work": work_folder(plan),
            "results": plan.results,
            **(variables or {}),
        },
        job=_written(document + b"\n", '"$work/job.json"'),
        agent_parts=job.PARTS,
        command_of=_command_of,
        flags=lambda **options: "\n".join(_flags(options)),
        is_secret=_is_secret,
        **values,
    )
    text = text.rstrip("\n").replace(NEWLINE, "\n")
    shown = mask_credentials(text)
    note = [MASKED] if shown != text else []
    return "\n".join(["(", WHAT, "set -eu", *note, shown, ")"])


def _context(plan: RunPlan, image: ImagePlan) -> Iterator[str]:
    """Copy the files of the build context from where they are; write those that are nowhere."""
    own = [path for path in (plan.host.requirements, plan.network.ca_bundle) if path]
    for name, content in sorted(image.context.items()):
        known = {f'"$repository"/docker/{shlex.quote(name)}': REPOSITORY / "docker" / name}
        known |= {shlex.quote(str(path)): path for path in own}
        same = (at for at, path in known.items() if path.is_file() and path.read_bytes() == content)
        found = next(same, None)
        mode = 755 if content.startswith(b"#!") else 644
        target = f'"$work/context"/{shlex.quote(name)}'
        yield f"install -D -m {mode} {found or '/dev/null'} {target}"
        if found is None:
            yield _written(content, target)


def _written(content: bytes, target: str) -> str:
    """Write a file by a here-document; what is no text is in base64."""
    try:
        text, program = content.decode(), "cat"
    except UnicodeDecodeError:
        text = ""
    if not text.endswith("\n") or "\r" in text or "\0" in text:
        text, program = base64.encodebytes(content).decode(), "base64 --decode"
    end = "END"
    while end in text.splitlines():
        end += "_"
    return f"{program} > {target} << '{end}'\n{text}{end}"


def _command(block: str) -> str:
    """Join the words of a command, which are quoted already."""
    words = [word for word in block.split("\n") if word]
    line = " ".join(words)
    return (line if len(line) <= WIDTH else " \\\n    ".join(words)) + "\n"


def _quote(value: object) -> str:
    return shlex.quote(str(value)).replace("\n", NEWLINE)


def _words(words: Iterable[str]) -> str:
    return " ".join(map(_quote, words))


def _command_of(stage: StagePlan) -> str:
    variables = [f"{name}={value}" for name, value in stage.environment.items()]
    return shlex.join([*(["env", *variables] if variables else []), *stage.command])


def _is_secret(value: str) -> bool:
    return mask_credentials(value) != value


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    """Spell options of the SDK as flags of the command line; None is an absent one."""
    for name, value in options.items():
        flag = FLAGS.get(name, "--" + name.replace("_", "-"))
        if value is True:
            yield flag
        elif name == "device_requests":
            for request in value:
                yield from _request(request)
        elif isinstance(value, Mapping):
            # Docker takes one without a value from the shell.
            pairs = (key if _is_secret(item) else f"{key}={item}" for key, item in value.items())
            yield from (f"{flag} {_quote(pair)}" for pair in pairs)
        elif isinstance(value, list):
            yield from (f"{flag} {_quote(_item(item))}" for item in value)
        elif value is not None:
            yield f"{flag} {_quote(value)}"


def _item(item: Any) -> str:
    return f"{item.name}={item.soft}:{item.hard}" if isinstance(item, Ulimit) else str(item)


def _request(request: Mapping[str, Any]) -> Iterator[str]:
    """Devices by name, as the Container Device Interface has them, or as ``--gpus``."""
    names = request["DeviceIDs"]
    if request["Driver"] == "cdi":
        yield from (f"--device {_quote(name)}" for name in names)
    else:
        which = f'"device={",".join(names)}"' if names else "all"
        yield f"--gpus {_quote(which)}"
