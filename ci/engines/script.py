"""A plan as a script that does what a run does: ``--dry-run``.

The script is for ``sh``, to be run from a file or pasted. All of it is one subshell: a failing
command ends the script, and never the shell that it was pasted into. Passwords are not in it:
where a setting holds one, the script takes the setting from a variable of the same name.
"""

from __future__ import annotations

import base64
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from docker.types import Ulimit

from ci.engines.devices import CONTAINER_PROBE, PROBE, exposure_of, lease_volume
from ci.engines.images import BASE_DIGEST_LABEL, BASE_LABEL, image_labels
from ci.engines.job import FOLDER, PARTS, volume_labels
from ci.engines.workfolder import PIP_INSTALL
from ci.model.plan import (
    CONTAINER_CA_BUNDLE,
    CONTAINER_WHEELS,
    Exposure,
    ImageArchive,
    ImagePlan,
    RunPlan,
)
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
STOP_SERVER = "kill $! 2> /dev/null"
WHAT = "# the commands of a run; its verdict, table and results.json are not part of it"
MASKED = "# *** below hides a password: put it there before you run this"
STAGES = "# the stages; their output is in *.log of the results, events are printed"


def work_folder(plan: RunPlan) -> Path:
    """The temporary folder of the script; removed at its end."""
    return Path(tempfile.gettempdir(), f"infini-ci-{plan.run_id}-{plan.platform}")


def describe_docker(
    plan: RunPlan,
    options: Mapping[str, Any],
    agent_command: tuple[str, ...],
    *,
    job: bytes,
    engine: Mapping[str, str],
) -> str:
    """Return the script of a run in a container.

    ``options`` are those of the SDK's ``create``, ``job`` is the agent's input, and ``engine`` are
    the variables that lead the docker command to the engine.
    """
    image = plan.needed_image
    settings = {**plan.network.environment, **image.build_arguments, **plan.environment}
    secrets = {name: value for name, value in settings.items() if _is_secret(value)}
    return _script(
        *_beginning(plan, name=plan.container.name, image=image.tag),
        *_exports({**engine, **secrets}),
        *(_unpacked_bundle(plan, image.archive) if image.archive else ()),
        *_wheelhouse(plan),
        *(_bundled_image(image.archive) if image.archive else _built_image(plan, image)),
        *_container(plan, options, agent_command),
        *_sources(plan, plan.container.workspace, plan.container.user),
        _put_in("sources"),
        *_agent(plan, job),
        *_container_files(plan, agent_command),
        STAGES,
        "code=0",
        'docker start --attach "$name" || code=$?',
        "# results",
        'mkdir -p "$results"',
        f'docker cp "$name":{plan.container.results}/. "$results"',
        'exit "$code"',
    )


def describe_host(
    plan: RunPlan, environment: Mapping[str, str], *, job: bytes, unset: Iterable[str]
) -> str:
    """Return the script of a run on this machine.

    ``environment`` is what the stages get on top of the shell's, without the variables ``unset``.
    """
    requirements = shlex.quote(str(plan.host.requirements))
    return _script(
        *_beginning(plan),
        'mkdir -p "$results"',
        "# environment of the stages; as in a run, they also get what the shell exports",
        f"unset {' '.join(sorted(unset))}",
        *_exports(environment),
        'export VIRTUAL_ENV="$work/venv" PATH="$work/venv/bin:$PATH"',
        "# virtual environment",
        '"$python" -m venv "$work/venv"',
        f'"$work/venv/bin/python" {shlex.join(PIP_INSTALL)} {requirements}',
        *_sources(plan, "workspace", "0"),
        'tar --extract --no-same-owner --directory "$work" --file "$work/sources.tar"',
        *_agent(plan, job),
        STAGES,
        '"$work/venv/bin/python" "$work/agent.pyz" "$work/job.json" < /dev/null',
    )


def _script(*lines: str) -> str:
    text = "\n".join(lines)
    shown = mask_credentials(text)
    note = [MASKED] if shown != text else []
    return "\n".join(["(", WHAT, "set -eu", *note, shown, ")"])


def _beginning(plan: RunPlan, **names: str) -> Iterator[str]:
    variables = {
        "repository": REPOSITORY,
        "python": plan.host.python,
        "work": work_folder(plan),
        "results": plan.results,
        **names,
    }
    yield from (f"{name}={shlex.quote(str(value))}" for name, value in variables.items())
    yield 'mkdir -m 700 "$work"'
    yield _at_the_end()
    yield "trap 'exit 130' INT TERM"


def _at_the_end(*commands: str) -> str:
    """Whatever ends the script, do this; a failure of one command stops no other."""
    each = (f"{command} || true; " for command in commands)
    return f"""trap '{"".join(each)}rm -rf "$work"' EXIT"""


def _exports(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if _is_secret(value):
            shown = mask_credentials(value)
            yield f"# {name} holds a password, which is not printed: set it to {shown}"
            yield f'export {name}="${{{name}:?set it, with its password}}"'
        else:
            yield f"export {name}={shlex.quote(value)}"


def _is_secret(value: str) -> bool:
    return mask_credentials(value) != value


def _unpacked_bundle(plan: RunPlan, archive: ImageArchive) -> Iterator[str]:
    wheels = [f"{bundle.WHEELS}{plan.platform}"] if plan.network.wheels else []
    yield "# the bundle"
    yield 'mkdir "$work/bundle" "$work/source"'
    yield _command(
        'tar --extract --directory "$work/bundle" --strip-components 1',
        f"--file {shlex.quote(str(archive.bundle))}",
        *(shlex.quote(bundle.FOLDER + member) for member in (bundle.SOURCE, *wheels)),
    )
    yield f'tar --extract --directory "$work/source" --file "$work/bundle/{bundle.SOURCE}"'


def _wheelhouse(plan: RunPlan) -> Iterator[str]:
    """Serve the wheelhouse, as a run does while it builds and runs."""
    folder, port = plan.network.wheelhouse, plan.network.wheelhouse_port
    if folder is None:
        return
    yield f"# wheelhouse; an engine elsewhere needs ssh -R {port} to it"
    yield _command(
        f'"$python" -m http.server {port} --bind 127.0.0.1',
        f'--directory {shlex.quote(str(folder))} > "$work/wheelhouse.log" 2>&1 &',
    )
    yield _at_the_end(STOP_SERVER)
    yield "sleep 2"


def _bundled_image(archive: ImageArchive) -> Iterator[str]:
    yield "# image"
    yield f"docker image inspect {archive.id} > /dev/null 2>&1 ||"
    yield f"    tar -xOf {shlex.quote(str(archive.bundle))} {archive.member} | docker load"
    yield f'docker tag {archive.id} "$image"'


def _built_image(plan: RunPlan, image: ImagePlan) -> Iterator[str]:
    yield "# image; a run also rebuilds it where its base image has changed"
    yield 'if ! docker image inspect "$image" > /dev/null 2>&1; then'
    yield f"base={shlex.quote(image.base_image)}"
    pull = 'docker image inspect "$base" > /dev/null 2>&1 || docker pull "$base"'
    if image.offline_base_image and image.offline_base_command:
        yield f"{pull} ||"
        yield f"    base={shlex.quote(image.offline_base_image)}"
        yield 'docker image inspect "$base" > /dev/null 2>&1 ||'
        yield f'    (cd "$repository" && {shlex.join(image.offline_base_command)} "$base")'
    else:
        yield pull
    yield 'digest=$(docker image inspect --format "{{.Id}}" "$base")'
    yield 'mkdir "$work/context"'
    for name, content in sorted(image.context.items()):
        yield from _context_file(plan, name, content)
    # What a later run knows the image by.
    labels = {name: value for name, value in image_labels(plan, "", "").items() if value}
    dockerfile = f"{work_folder(plan)}/context/{image.dockerfile}"
    yield _command(
        "docker build",
        *_flags({"force_rm": True, "network": plan.container.network_mode}),
        *_flags({"build_arguments": image.build_arguments}),
        '--build-arg BASE_IMAGE="$base"',
        *_flags({"labels": labels}),
        f'--label {BASE_LABEL}="$base" --label {BASE_DIGEST_LABEL}="$digest"',
        *_flags({"file": dockerfile}),
        '--tag "$image"',
        '"$work/context"',
    )
    yield "fi"


def _context_file(plan: RunPlan, name: str, content: bytes) -> Iterator[str]:
    """Copy a file of the build context from where it is; write those that are nowhere."""
    known = {f'"$repository"/docker/{shlex.quote(name)}': REPOSITORY / "docker" / name}
    for path in filter(None, (plan.host.requirements, plan.network.ca_bundle)):
        known[shlex.quote(str(path))] = path
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


def _container(
    plan: RunPlan, options: Mapping[str, Any], agent_command: tuple[str, ...]
) -> Iterator[str]:
    by_file: list[str] = []
    if plan.devices is not None:
        facts, folder = plan.devices.facts, plan.devices.folder
        yield "# the folder of the device leases, which the engine makes as root"
        yield _command(
            "docker run --rm --user 0 --network none",
            f"--volume {lease_volume(plan.devices)}",
            f'--entrypoint chmod "$image" 1777 {folder}',
        )
    if plan.cache:
        yield "# compiler cache, used where the image has ccache"
        labels = _flags({"labels": volume_labels(plan)})
        yield _command("docker volume create", *labels, plan.cache.name)
    yield "# container"
    if plan.devices is not None and exposure_of(plan.devices) is Exposure.FILES:
        yield "# its device files are looked for here; a run looks on the engine's machine"
        wanted = {
            "--device %n:%n:rw": facts.files,
            "--group-add %g": facts.files,
            "--volume %n:%n:ro": facts.mounts,
        }
        by_file = [
            f'$(stat -c "{option}" {" ".join(paths)} 2> /dev/null)'
            for option, paths in wanted.items()
            if paths
        ]
    program, *arguments = (*plan.needed_image.entry, *agent_command)
    yield _command(
        "docker create",
        *_flags({**options, "environment": None}),
        *by_file,
        *_flags({"environment": options["environment"]}),
        "--log-driver json-file",
        *_flags({"entrypoint": program}),
        f'"$image" {shlex.join(arguments)}',
    )
    server = [STOP_SERVER] if plan.network.wheelhouse else []
    yield _at_the_end(*server, 'docker rm --force --volumes "$name"')


def _sources(plan: RunPlan, prefix: str, owner: str) -> Iterator[str]:
    packed = plan.image is not None and plan.image.archive is not None
    folder = '"$work/source"' if packed else shlex.quote(str(plan.source))
    yield "# sources: in git, tracked files and untracked ones that are not ignored"
    yield _folder_archive("sources", folder, prefix, owner, packed=packed)


def _folder_archive(name: str, folder: str, prefix: str, owner: str, *, packed: bool) -> str:
    """The very program that a run lists and packs the files with."""
    return _command(
        'PYTHONPATH="$repository" "$python" -P -m ci.plan.source',
        f"{folder} {shlex.quote(prefix.strip('/'))} {owner}{' packed' if packed else ''}",
        f'> "$work/{name}.tar"',
    )


def _put_in(name: str) -> str:
    """From a file, as of a pipe `sh` sees only the last command fail."""
    return f'docker cp - "$name":/ < "$work/{name}.tar"'


def _agent(plan: RunPlan, job: bytes) -> Iterator[str]:
    yield "# the agent, which runs and measures the stages"
    yield 'mkdir -p "$work/zip/ci"'
    yield _command('(cd "$repository/ci" && cp --parents', " ".join(PARTS), '"$work/zip/ci")')
    yield _command(
        '"$python" -m zipapp "$work/zip"',
        "--main ci.agent.__main__:main",
        '--output "$work/agent.pyz"',
    )
    yield "# its job: these commands, one after the other in the folder of the sources"
    for stage in plan.stages:
        variables = [f"{name}={value}" for name, value in stage.environment.items()]
        command = shlex.join([*(["env", *variables] if variables else []), *stage.command])
        again = f", failed tests {stage.reruns} times more" if stage.reruns else ""
        yield f"#   {stage.name}, at most {stage.timeout_s:g} s{again}:"
        yield from (f"#     {line}" for line in command.splitlines())
    yield _written(job + b"\n", '"$work/job.json"')


def _container_files(plan: RunPlan, agent_command: tuple[str, ...]) -> Iterator[str]:
    """Put in what belongs to root, then the folders that the stages write to."""
    _, agent, job = agent_command
    files = {agent: '"$work/agent.pyz"', job: '"$work/job.json"'}
    if plan.devices is not None:
        files[CONTAINER_PROBE[1]] = f'"$repository"/{PROBE.relative_to(REPOSITORY)}'
    if plan.network.ca_bundle is not None:
        files[CONTAINER_CA_BUNDLE] = shlex.quote(str(plan.network.ca_bundle))
    for target, source in files.items():
        yield f'install -D -m 644 {source} "$work/root{target}"'
    yield from _packed("root", files, "0")
    folders = [plan.container.results, *([FOLDER] if plan.cache else [])]
    yield _command("mkdir -p", *(f'"$work/user{folder}"' for folder in folders))
    yield from _packed("user", folders, plan.container.user)
    if plan.network.wheels is not None:
        wheels = f'"$work/bundle/{bundle.WHEELS}{plan.platform}"'
        yield _folder_archive("wheels", wheels, CONTAINER_WHEELS, plan.container.user, packed=True)
        yield _put_in("wheels")


def _packed(folder: str, paths: Iterable[str], owner: str) -> Iterator[str]:
    yield _command(
        f'tar -C "$work/{folder}" --owner {owner} --group {owner} --mode u=rwX,go=rX',
        f'-cf "$work/{folder}.tar"',
        *(path.strip("/") for path in paths),
    )
    yield _put_in(folder)


def _command(*words: str) -> str:
    """Join words that are quoted already."""
    line = " ".join(words)
    return line if len(line) <= WIDTH else " \\\n    ".join(words)


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
            yield from (f"{flag} {shlex.quote(pair)}" for pair in pairs)
        elif isinstance(value, list):
            yield from (f"{flag} {shlex.quote(_item(item))}" for item in value)
        elif value is not None:
            yield f"{flag} {shlex.quote(str(value))}"


def _item(item: Any) -> str:
    return f"{item.name}={item.soft}:{item.hard}" if isinstance(item, Ulimit) else str(item)


def _request(request: Mapping[str, Any]) -> Iterator[str]:
    """Devices by name, as the Container Device Interface has them, or as ``--gpus``."""
    names = request["DeviceIDs"]
    if request["Driver"] == "cdi":
        yield from (f"--device {shlex.quote(name)}" for name in names)
    else:
        which = f'"device={",".join(names)}"' if names else "all"
        yield f"--gpus {shlex.quote(which)}"
