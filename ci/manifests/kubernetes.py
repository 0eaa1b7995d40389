"""A plan as a Job of Kubernetes, and the files from which its pod starts.

No engine follows the pod. It gets all it needs from a folder on a volume, which has a folder of
inputs and, for each platform, one for the results. What a Docker Engine copies into a container,
a first container of the pod copies into a volume that is mounted over the writable folders.

https://kubernetes.io/docs/concepts/workloads/controllers/job/
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ci.engines.archives import pack
from ci.engines.devices import CONTAINER_PROBE
from ci.engines.job import (
    AGENT,
    COMMAND,
    JOB,
    PRIVILEGED,
    agent_archive,
    container_files,
    credentials_of,
    is_privileged,
    isolation_notes,
    job_document,
)
from ci.engines.logs import STREAMED_BYTES_PER_S
from ci.errors import ConfigError
from ci.model.plan import (
    CONTAINER_FOLDER,
    CONTAINER_WHEELS,
    PLATFORM_LABEL,
    PREPARATION_S,
    RUN_LABEL,
    RunPlan,
)
from ci.plan import source
from ci.plan.project import SITE_FILE, Project
from ci.plan.site import KubernetesPlatform, SiteKubernetes
from ci.protocol.job import UNPACK
from ci.util.text import join_names, mask_credentials

SYSTEM = "kubernetes"
INPUTS = "inputs"  # in the folder of a run
SOURCE_ARCHIVE = "source.tar"
AGENT_PROGRAM = "agent.pyz"
WHEELS = "wheels"
LEASES = f"{CONTAINER_FOLDER}/leases"  # of this pod alone: the cluster assigned its devices
VOLUME = "/volume"  # where the first container fills the volume of the writable folders
GRACE_S = 90  # the agent needs 10 s to end a stage, then collects artifacts
KEPT_S = 7 * 24 * 3600  # a Job and its log stay for so long after their end
AGENT_CONTAINER = "agent"
# Names of the pod's volumes
FILES, RUNS, MEMORY = "files", "runs", "memory"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster of a site, and its settings for one platform."""

    site: SiteKubernetes
    own: KubernetesPlatform

    @classmethod
    def of(cls, project: Project, platform: str) -> Cluster:
        own = project.site.platform_settings(platform).kubernetes
        return cls(site=project.site.kubernetes, own=own)

    def image(self, plan: RunPlan) -> str:
        """Return the image of a plan; raises ``ConfigError`` if no registry is known."""
        if self.own.image:
            return self.own.image
        if self.site.registry is None:
            raise ConfigError(
                f"{SITE_FILE}: kubernetes.registry: got none, expected the registry from which the"
                f" cluster pulls the image of {plan.platform}",
                remedy="Set it, or name an image: platforms."
                f"{plan.platform}.kubernetes.image in {SITE_FILE}.",
            )
        return f"{self.site.registry}/{plan.needed_image.tag}"


def check_plan(plan: RunPlan) -> None:
    """Raise ``ConfigError`` for what neither the Job nor its volume may hold, or can have."""
    where = f"manifest: {plan.platform}"
    named = {**plan.environment, **{n: v for s in plan.stages for n, v in s.environment.items()}}
    secret = [name for name, value in named.items() if mask_credentials(value) != value]
    if names := [*credentials_of(plan), *secret]:
        raise ConfigError(
            f"{where}: got passwords in {join_names(sorted(set(names)))}, expected none: others can"
            " read a Job",
            remedy="Use addresses without passwords, such as those of a mirror in the cluster.",
        )


def job_notes(plan: RunPlan) -> Iterator[str]:
    """Yield what a pod does differently from a container that an engine follows."""
    yield from isolation_notes(plan, "Kubernetes")
    if is_privileged(plan):
        yield PRIVILEGED


def writable_folders(plan: RunPlan) -> tuple[str, ...]:
    """Return the folders over which a volume is mounted."""
    return plan.container.writable or (plan.container.workspace, CONTAINER_FOLDER)


def job_manifest(plan: RunPlan, cluster: Cluster) -> dict[str, Any]:
    """Return the Job of a plan, as the API has it."""
    # Not the project's: the value of a label is shorter than its name may be.
    labels = {name: plan.container.labels[name] for name in (RUN_LABEL, PLATFORM_LABEL)}
    metadata: dict[str, Any] = {"name": plan.container.name.lower(), "labels": labels}
    if cluster.site.namespace:
        metadata["namespace"] = cluster.site.namespace
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            # A second pod would write over the results of the first.
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {"metadata": {"labels": dict(labels)}, "spec": _pod(plan, cluster)},
        },
    }


def _pod(plan: RunPlan, cluster: Cluster) -> dict[str, Any]:
    user = int(plan.container.user)
    volumes: list[dict[str, Any]] = [
        {"name": FILES, "emptyDir": {}},
        {"name": RUNS, "persistentVolumeClaim": {"claimName": cluster.site.claim}},
    ]
    if size := plan.container.shm_size_bytes:
        volumes.append({"name": MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}})
    selector = cluster.own.node_selector
    return {
        "restartPolicy": "Never",
        # Of the pod, whose time begins on a node, before it pulls the image. That of the Job would
        # include its wait for a node.
        "activeDeadlineSeconds": math.ceil(plan.longest_s + PREPARATION_S),
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # variables that name other services
        "shareProcessNamespace": True,  # its first process collects orphans, as Docker's init does
        **({"nodeSelector": dict(selector)} if selector else {}),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_unpacking_container(plan, cluster)],
        "containers": [_agent_container(plan, cluster)],
        "volumes": volumes,
    }


def _unpacking_container(plan: RunPlan, cluster: Cluster) -> dict[str, Any]:
    archives = [f"/{INPUTS}/{name}" for name in (SOURCE_ARCHIVE, f"{plan.platform}.tar")]
    return {
        "name": UNPACK,
        "image": cluster.image(plan),
        "command": ["python3", "-I", f"/{INPUTS}/{AGENT_PROGRAM}"],
        "args": [UNPACK, VOLUME, ",".join(archives), *writable_folders(plan)],
        "securityContext": _restrictions(read_only=True),
        "volumeMounts": [
            {"name": FILES, "mountPath": VOLUME},
            _inputs(plan, f"/{INPUTS}"),
        ],
    }


def _inputs(plan: RunPlan, place: str, folder: str = ".") -> dict[str, Any]:
    """Return the mount of the run's inputs, or of a folder of them, which no pod changes."""
    path = os.path.normpath(f"{plan.run_id}/{INPUTS}/{folder}")
    return {"name": RUNS, "mountPath": place, "subPath": path, "readOnly": True}


def _agent_container(plan: RunPlan, cluster: Cluster) -> dict[str, Any]:
    container, resources = plan.container, {}
    mounts = [
        {"name": FILES, "mountPath": folder, "subPath": folder.lstrip("/")}
        for folder in writable_folders(plan)
    ]
    results = f"{plan.run_id}/{plan.platform}"
    mounts.append({"name": RUNS, "mountPath": container.results, "subPath": results})
    if plan.network.wheelhouse is not None:
        mounts.append(_inputs(plan, CONTAINER_WHEELS, WHEELS))
    if container.shm_size_bytes:
        mounts.append({"name": MEMORY, "mountPath": "/dev/shm"})  # noqa: S108 - that of the pod
    if container.memory_bytes:
        resources["memory"] = str(container.memory_bytes)
    if plan.devices:
        resource = cluster.own.resource or plan.devices.facts.resource
        resources[resource] = str(plan.devices.count * plan.shards)
    variables = {**plan.network.environment, **plan.environment}
    return {
        "name": AGENT_CONTAINER,
        "image": cluster.image(plan),
        "command": [*plan.needed_image.entry, *COMMAND],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "workingDir": container.workspace,
        # Equal, so that the node has what the run may use.
        **({"resources": {"requests": dict(resources), "limits": resources}} if resources else {}),
        "securityContext": {"privileged": True}
        if is_privileged(plan)
        else _restrictions(read_only=container.writable is not None),
        "volumeMounts": mounts,
    }


def _restrictions(*, read_only: bool) -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": read_only,
    }


def write_inputs(plans: Sequence[RunPlan], folder: Path) -> list[str]:
    """Write what the pods of a run need to ``folder``, which becomes that of the run on the volume.

    Returns the names that were left out of the sources.
    """
    inputs = folder / INPUTS
    inputs.mkdir(parents=True)
    first = plans[0]
    with (inputs / SOURCE_ARCHIVE).open("wb") as file:
        prefix = first.container.workspace.lstrip("/")
        left_out = source.write_archive(first.source, file, prefix=prefix)
    (inputs / AGENT_PROGRAM).write_bytes(agent_archive())
    if first.network.wheelhouse is not None:
        shutil.copytree(first.network.wheelhouse, inputs / WHEELS, copy_function=_link_or_copy)
    for plan in plans:
        files = {name: path.read_bytes() for name, path in container_files(plan).items()}
        files |= {AGENT: agent_archive(), JOB: _job(plan)}
        contents = {name.lstrip("/"): content for name, content in files.items()}
        (inputs / f"{plan.platform}.tar").write_bytes(pack(contents).read())
        # Made here: a node would make it as root.
        (folder / plan.platform).mkdir()
    return list(left_out)


def _link_or_copy(path: str, target: str) -> None:
    """A wheel of a framework has gigabytes, and no one changes it."""
    try:
        os.link(path, target)
    except OSError:  # on another disk
        shutil.copyfile(path, target)


def _job(plan: RunPlan) -> bytes:
    """The agent's input file in a pod."""
    if plan.devices is not None:
        # The device plugin chose them, whatever they are called on the machines of this site.
        devices = replace(plan.devices, folder=LEASES, uuids=())
        plan = replace(plan, devices=devices)
    return job_document(
        plan,
        workspace=plan.container.workspace,
        results=plan.container.results,
        printed_bytes_per_s=STREAMED_BYTES_PER_S,
        probe=CONTAINER_PROBE,
        isolates_network=False,
    )


def images(plans: Sequence[RunPlan], clusters: Mapping[str, Cluster]) -> Iterator[tuple[str, str]]:
    """Yield the local and the remote name of each image that has to be pushed."""
    for plan in plans:
        cluster = clusters[plan.platform]
        if not cluster.own.image:
            yield plan.needed_image.tag, cluster.image(plan)
