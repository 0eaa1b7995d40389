"""Runs the pod of a Job on a Docker Engine: what a kubelet does for one pod, without a cluster.

Containers get image, command, user, variables, limits and mounts of the manifest, and nothing else.
A field that it does not know fails the test, so that no part of the manifest is left untried.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.client import DockerClient

# They matter to a cluster alone: who starts the pod, where, and for how long.
OF_THE_CLUSTER = {
    "restartPolicy",
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "shareProcessNamespace",
}
OPEN = 0o777  # the mode of an empty folder of a pod


@dataclass(kw_only=True)
class PodRunner:
    """Runs pods; ``claim`` is the folder of the volume that their claim names."""

    client: DockerClient
    folder: Path
    claim: Path
    images: Mapping[str, str]
    """The name of each image on this engine, by its name in the registry."""

    def run(self, job: Mapping[str, Any]) -> dict[str, int]:
        """Run the containers one after the other; return their exit codes until one fails."""
        spec = job["spec"]["template"]["spec"]
        parts = {"securityContext", "initContainers", "containers", "volumes"}
        assert spec.keys() <= OF_THE_CLUSTER | parts, spec.keys()
        volumes = {it["name"]: self._volume(it) for it in spec["volumes"]}
        codes = {}
        for container in (*spec["initContainers"], *spec["containers"]):
            code = self._run(container, spec["securityContext"], volumes)
            codes[container["name"]] = code
            if code:
                break
        return codes

    def _volume(self, volume: Mapping[str, Any]) -> Path:
        if "persistentVolumeClaim" in volume:
            return self.claim
        assert volume.keys() == {"name", "emptyDir"}, volume
        path = self.folder / f"{volume['name']}-{uuid.uuid4().hex[:8]}"
        path.mkdir()
        path.chmod(OPEN)
        return path

    def _run(
        self, container: Mapping[str, Any], pod: Mapping[str, Any], volumes: Mapping[str, Path]
    ) -> int:
        limits = dict(container.get("resources", {}).get("limits", {}))
        options = {
            "entrypoint": container["command"],
            "command": container.get("args", []),
            "environment": {it["name"]: it["value"] for it in container.get("env", ())},
            "working_dir": container.get("workingDir"),
            "user": f"{pod['runAsUser']}:{pod['runAsGroup']}",
            "group_add": [str(pod["fsGroup"])],
            "volumes": [*self._mounts(container, volumes)],
            "mem_limit": limits.pop("memory", None),
            **_security(container["securityContext"]),
        }
        known = {"name", "image", "command", "args", "env", "workingDir", "resources"}
        assert container.keys() <= known | {"securityContext", "volumeMounts"}, container.keys()
        assert not limits, limits
        made = self.client.containers.create(self.images[container["image"]], **options)
        try:
            made.start()
            return int(made.wait()["StatusCode"])
        finally:
            (self.folder / f"{container['name']}.log").write_bytes(made.logs())
            made.remove(force=True, v=True)

    def _mounts(self, container: Mapping[str, Any], volumes: Mapping[str, Path]) -> Iterator[str]:
        """Yield the mounts; as a kubelet, make a missing folder of a volume as root."""
        for mount in container["volumeMounts"]:
            assert mount.keys() <= {"name", "mountPath", "subPath", "readOnly"}, mount
            path = volumes[mount["name"]] / mount.get("subPath", "")
            path.mkdir(parents=True, exist_ok=True)
            yield f"{path}:{mount['mountPath']}:{'ro' if mount.get('readOnly') else 'rw'}"


def _security(context: Mapping[str, Any]) -> dict[str, Any]:
    assert context.keys() == {"allowPrivilegeEscalation", "capabilities", "readOnlyRootFilesystem"}
    assert context["allowPrivilegeEscalation"] is False
    return {
        "security_opt": ["no-new-privileges"],
        "cap_drop": context["capabilities"]["drop"],
        "read_only": context["readOnlyRootFilesystem"],
    }


def own_as(folder: Path, user: int) -> None:
    """Give a folder to a user, as the pod does that copies it to the claim."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in names)):
            os.chown(path, user, user)
