"""A plan as the commands that one would type: ``--dry-run``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

from docker.types import Ulimit

from ci.engines.compiler_cache import host_folder, volume_labels
from ci.network import mask_credentials
from ci.plan import CONTAINER_CA_BUNDLE, CONTAINER_WHEELS, RunPlan

# Where the SDK's name of an option is not the command line's.
FLAGS = {
    "devices": "--device",
    "ulimits": "--ulimit",
    "labels": "--label",
    "environment": "--env",
    "network_mode": "--network",
    "mem_limit": "--memory",
    "memswap_limit": "--memory-swap",
    "volumes": "--volume",
}


def describe_docker(
    plan: RunPlan, options: Mapping[str, object], agent_command: tuple[str, ...]
) -> str:
    """Describe a run in a container; ``options`` are those of the SDK's ``create``."""
    return _text((*_image(plan), *_container(plan, options, agent_command)))


def describe_host(plan: RunPlan, environment: Mapping[str, str]) -> str:
    """Describe a run on this machine; ``environment`` is what the stages get on top."""
    install = ["venv/bin/python", "-m", "pip", "install", "--requirement"]
    return _text(
        (
            "# in a temporary folder, removed at the end",
            shlex.join([plan.host.python, "-m", "venv", "venv"]),
            shlex.join([*install, str(plan.host.requirements)]),
            "# sync: tracked files, and untracked ones that are not ignored",
            shlex.join(["cp", "--recursive", f"{plan.source}/.", "workspace"]),
            "# environment of every stage, with the virtual environment first on PATH",
            *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
            *(
                [f"# compiler cache, where ccache is found: {host_folder(plan.cache)}"]
                if plan.cache
                else []
            ),
            *_stages(plan),
        )
    )


def _image(plan: RunPlan) -> Iterator[str]:
    image = plan.needed_image
    if image.archive is not None:
        bundle = shlex.quote(str(image.archive.bundle))
        yield f"# image, unless {image.tag} is there as {image.archive.id}"
        yield f"tar -xOf {bundle} {image.archive.member} | docker load"
        return
    options = {
        "force_rm": True,
        "network": plan.container.network_mode,
        "build_arg": {**image.build_arguments, "BASE_IMAGE": image.base_image},
        "file": image.dockerfile,
        "tag": image.tag,
    }
    if image.offline_base_image and image.offline_base_command:
        yield f"# base image, only where {image.base_image} cannot be pulled"
        yield shlex.join([*image.offline_base_command, image.offline_base_image])
    yield f"# image, unless {image.tag} is there; build context: {', '.join(sorted(image.context))}"
    yield shlex.join(["docker", "build", *_flags(options), "."])


def _container(
    plan: RunPlan, options: Mapping[str, object], agent_command: tuple[str, ...]
) -> Iterator[str]:
    name = plan.container.name
    program, *arguments = (*plan.needed_image.entry, *agent_command)
    if plan.cache:
        yield "# compiler cache, used where the image has ccache"
        labels = _flags({"labels": volume_labels(plan)})
        yield shlex.join(["docker", "volume", "create", *labels, plan.cache.name])
    create = {**options, "log_driver": "json-file", "entrypoint": program}
    yield "# container"
    yield shlex.join(["docker", "create", *_flags(create), plan.needed_image.tag, *arguments])
    yield "# sync: tracked files, and untracked ones that are not ignored; the agent, its job"
    yield shlex.join(["docker", "cp", f"{plan.source}/.", f"{name}:{plan.container.workspace}"])
    if plan.network.ca_bundle is not None:
        bundle = str(plan.network.ca_bundle)
        yield shlex.join(["docker", "cp", bundle, f"{name}:{CONTAINER_CA_BUNDLE}"])
    if plan.network.wheels is not None:
        wheels = f"{plan.network.wheels}/."
        yield shlex.join(["docker", "cp", wheels, f"{name}:{CONTAINER_WHEELS}"])
    yield shlex.join(["docker", "start", "--attach", name])
    yield from _stages(plan)
    yield "# results"
    yield shlex.join(["docker", "cp", f"{name}:{plan.container.results}/.", str(plan.results)])
    yield shlex.join(["docker", "rm", "--force", "--volumes", name])


def _stages(plan: RunPlan) -> Iterator[str]:
    yield "# stages, run by the agent in the workspace"
    for stage in plan.stages:
        variables = [f"{name}={value}" for name, value in stage.environment.items()]
        prefix = ["env", *variables] if variables else []
        command = shlex.join([*prefix, *stage.command])
        again = f", failed tests {stage.reruns} times more" if stage.reruns else ""
        yield f"{command}  # {stage.name}, at most {stage.timeout_s:g} s{again}"


def _flags(options: Mapping[str, object]) -> Iterator[str]:
    """Spell options of the SDK as flags of the command line; None is an absent one."""
    for name, value in options.items():
        flag = FLAGS.get(name, "--" + name.replace("_", "-"))
        if value is True:
            yield flag
        elif name == "device_requests":
            yield from _requests(value)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                yield from (flag, f"{key}={item}")
        elif isinstance(value, list):
            for item in value:
                limit = isinstance(item, Ulimit)
                yield from (flag, f"{item.name}={item.soft}:{item.hard}" if limit else str(item))
        elif value is not None:
            yield from (flag, str(value))


def _requests(requests: object) -> Iterator[str]:
    """Devices by name, as the Container Device Interface has them, or as ``--gpus``."""
    assert isinstance(requests, list)  # noqa: S101
    for request in requests:
        names = request["DeviceIDs"]
        if request["Driver"] == "cdi":
            yield from (part for name in names for part in ("--device", name))
        else:
            yield from ("--gpus", f'"device={",".join(names)}"' if names else "all")


def _text(lines: Iterable[str]) -> str:
    return mask_credentials("\n".join(lines))
