"""A plan as a script that does what a run does: ``--dry-run``.

The script is for ``sh``, to be run from a file or pasted; its template is ``script.sh.j2``. All of
it is one subshell: a failing command ends the script, and never the shell that it was pasted into.
The script holds no passwords: it reads a setting with a password from a variable of that name.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.types import Mount, Ulimit

from ci.engines import devices, job
from ci.engines.docker import images, wheelhouse
from ci.engines.host.environment import base_python, host_settings, venv_options
from ci.engines.host.workfolder import CONSTRAINTS, MAKE_VENV, PIP_INSTALL, VENV_SETTINGS
from ci.model.plan import CONTAINER_CREDENTIALS, CONTAINER_WHEELS, Exposure, ImagePlan, RunPlan
from ci.plan import bundle
from ci.protocol.job import StagePlan
from ci.util.files import REPOSITORY
from ci.util.interpreters import VENDOR_PACKAGES
from ci.util.text import MASK, mask_credentials

if TYPE_CHECKING:
    import jinja2

# Options whose name in the SDK is not that of the command line, apart from a plural.
FLAGS = {
    "environment": "--env",
    "build_arguments": "--build-arg",
    "mem_limit": "--memory",
    "memswap_limit": "--memory-swap",
}
WIDTH = 80  # characters; a longer command gets one line per word
HEADER = "# the commands of a run; they give no verdict, no table and no results.json"
MASKED = "# *** below hides a password: insert it before you run this script"
# A newline inside quotes ends no word. Until the script is complete it is this character, which no
# shell accepts, and which no file has that is written as text.
NEWLINE = "\0"


def work_folder(plan: RunPlan) -> Path:
    """Return the temporary folder of the script, which is removed at its end."""
    return Path(tempfile.gettempdir(), f"infini-ci-{plan.run_id}-{plan.platform}")


def describe_docker(plan: RunPlan, engine: Mapping[str, str]) -> str:
    """Return the script of a run in a container.

    ``engine`` are the variables that direct the docker command to the engine.
    """
    image, wanted = plan.needed_image, plan.devices
    settings = {**job.credentials_of(plan), **image.build_arguments, **plan.environment}
    secrets = {name: value for name, value in settings.items() if _is_secret(value)}
    # The script itself looks for device files, and passes them in these options of `docker create`.
    wheels = f"{plan.container.name}-wheels" if plan.network.wheelhouse else None
    options = job.container_options(plan, devices.DeviceFiles(files=()), wheels=wheels)
    device_files: dict[str, Sequence[str]] = {}
    if wanted and devices.exposure_of(wanted) is Exposure.FILES:
        device_files = {
            "--device %n:%n:rw": wanted.facts.files,
            "--group-add %g": wanted.facts.files,
            "--volume %n:%n:ro": wanted.facts.mounts,
        }
    given = {name: shlex.quote(str(path)) for name, path in job.container_files(plan).items()}
    if wanted:  # the repository is a variable of the script
        probe = devices.PROBE.relative_to(REPOSITORY)
        given[devices.CONTAINER_PROBE[1]] = f'"$repository"/{probe}'
    return _script(
        plan,
        job.container_job(plan),
        {"name": plan.container.name, "image": image.tag},
        exports={**engine, **secrets},
        image=image,
        context=[] if image.archive else list(_context(plan, image)),
        server_stage=None if image.archive else images.server_stage(image),
        # The labels by which a later run recognizes the image.
        labels={name: text for name, text in images.image_labels(plan, "", "").items() if text},
        environment=options.pop("environment"),
        options=options,
        device_files=device_files,
        workspace=plan.container.workspace,
        owner=plan.container.user,
        files={job.AGENT: '"$work/agent.pyz"', job.JOB: '"$work/job.json"', **given},
    )


def describe_host(plan: RunPlan, passed: Mapping[str, str]) -> str:
    """Return the script of a run on this machine, with the ``passed`` variables of the caller."""
    base = base_python(plan.host)
    constraints = work_folder(plan) / CONSTRAINTS if base.is_seen else None
    environment = host_settings(plan, constraints, passed)
    return _script(
        plan,
        job.host_job(plan, work_folder(plan)),
        {},
        on_host=True,
        exports={name: value for name, value in environment.items() if name != "PATH"},
        base=base,
        make_venv=shlex.join(MAKE_VENV),
        venv_options=shlex.join(venv_options(plan.host, base)),
        vendor_packages=f'"$repository"/{VENDOR_PACKAGES.relative_to(REPOSITORY)}',
        pip_install=shlex.join(PIP_INSTALL),
        venv_settings=" ".join(f"{name}={value}" for name, value in VENV_SETTINGS.items()),
        workspace=job.WORKSPACE,
        owner="0",
    )


def script_templates(folder: Path) -> jinja2.Environment:
    """Return the templates of shell scripts in ``folder``."""
    import jinja2  # takes 0.05 s, and a run does not need it

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - a script, not HTML
    )


def _script(plan: RunPlan, document: bytes, names: Mapping[str, str], **values: Any) -> str:
    environment = script_templates(Path(__file__).parent)
    environment.globals.update(credentials_file=CONTAINER_CREDENTIALS, agent=job.agent_user(plan))
    environment.globals.update(credentials=job.credentials_of(plan))
    environment.globals.update(shown_netrc=_shown_netrc)
    environment.filters.update(dirname=os.path.dirname)
    environment.filters.update(command=_command, masked=mask_credentials, quote=_quote)
    environment.globals.update(bundle=bundle, devices=devices, images=images, job=job)
    environment.globals.update(by_place=partial(job.by_place, plan), wheelhouse=wheelhouse)
    environment.globals.update(command_of=_command_of, is_secret=_is_secret, on_host=False)
    environment.globals.update(flags=_flags, words=_words, container_wheels=CONTAINER_WHEELS)
    variables = {
        "repository": REPOSITORY,
        "python": plan.host.python,
        "work": work_folder(plan),
        "results": plan.results,
        **names,
    }
    written = _here_document(document + b"\n", '"$work/job.json"')
    template = environment.get_template("script.sh.j2")
    text = template.render(plan=plan, variables=variables, written_job=written, **values)
    text = text.rstrip("\n").replace(NEWLINE, "\n")
    shown = mask_credentials(text)
    note = [MASKED] if shown != text else []
    return "\n".join(["(", HEADER, "set -eu", *note, shown, ")"])


def _context(plan: RunPlan, image: ImagePlan) -> Iterator[str]:
    """Yield commands that copy or write the files of the build context."""
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
            yield _here_document(content, target)


def _here_document(content: bytes, target: str) -> str:
    """Return a here-document that writes a file; base64 if it is not text."""
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
    """Join the words of a command; they are already quoted."""
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


def _shown_netrc(text: str) -> str:
    """Return a netrc file as one line without its passwords; line ends mean nothing in it."""
    return re.sub(r"(?<= password )\S+", MASK, " ".join(text.split()))


def _is_secret(value: str) -> bool:
    return mask_credentials(value) != value


def _flags(**options: Any) -> str:
    """Spell options of the SDK as flags of the command line; None is left out."""
    return "\n".join(flag for name, value in options.items() for flag in _flags_of(name, value))


def _flags_of(name: str, value: Any) -> Iterator[str]:
    flag = FLAGS.get(name, "--" + name.replace("_", "-").removesuffix("s"))
    if value is True:
        yield flag
    elif name == "device_requests":
        for request in value:
            yield from _request(request)
    elif isinstance(value, Mapping):
        # Docker reads a variable without a value from the shell.
        pairs = (key if _is_secret(item) else f"{key}={item}" for key, item in value.items())
        yield from (f"{flag} {_quote(pair)}" for pair in pairs)
    elif isinstance(value, list):
        for item in value:
            yield f"{flag} {_quote(_text_of(item))}"
    elif value is not None:
        yield f"{flag} {_quote(value)}"


def _text_of(item: object) -> str:
    if isinstance(item, Ulimit):
        return f"{item.name}={item.soft}:{item.hard}"
    if isinstance(item, Mount):
        labels = item.get("VolumeOptions", {}).get("Labels", {}).items()
        words = (f"volume-label={name}={value}" for name, value in labels)
        return ",".join([f"type={item['Type']}", f"target={item['Target']}", *words])
    return str(item)


def _request(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield a request for devices: names for the Container Device Interface, or ``--gpus``."""
    names = request["DeviceIDs"]
    if request["Driver"] == "cdi":
        yield from (f"--device {_quote(name)}" for name in names)
    else:
        which = f'"device={",".join(names)}"' if names else "all"
        yield f"--gpus {_quote(which)}"
