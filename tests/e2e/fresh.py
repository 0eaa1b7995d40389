"""Machines of new users: minimal Debian containers with python3 only.

The commands come from README's first section: its text is the input of the test.
"""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile

from docker.client import DockerClient

from ci.model.plan import CONTAINER_CA_BUNDLE
from ci.plan.network import read_pip_settings, resolve_network
from ci.plan.source import write_archive
from tests.e2e.plans import OFFLINE_BASE

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "docker" / "make-base-image"
USER, USER_ID = "newcomer", 1000
LABEL = ("infini-ci.project", "infini-ops")  # `gc` finds by it what stays behind
IMAGE = "infini-ci/fresh-machine:bookworm"
# Neither suggestions nor recommendations of what stays keep a compiler.
DOCKERFILE = f"""\
FROM {OFFLINE_BASE}
RUN apt-get purge --yes --auto-remove -o APT::AutoRemove::SuggestsImportant=false \\
    -o APT::AutoRemove::RecommendsImportant=false {{packages}} \\
    && useradd --uid {USER_ID} --create-home --shell /bin/bash {USER}
"""
SOCKET = "/var/run/docker.sock"
# pip's downloads outlive a container.
CACHE, CACHE_FOLDER = "infini-ops-fresh-pip", "/var/cache/pip"


@dataclass(frozen=True, kw_only=True)
class QuickStart:
    """The prerequisites in README's first section."""

    packages: tuple[str, ...]
    """Of Debian and Ubuntu."""
    commands: tuple[str, ...]
    """As written, without their comments."""


def quick_start() -> QuickStart:
    """Read README's text before its second heading."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = "\n## ".join(readme.split("\n## ")[:2])
    [packages] = re.findall(r"\bapt install ((?:[a-z0-9.+-]+ ?)+)", section)
    commands = re.findall(r"^(python3 noxfile\.py .*?) *(?:#.*)?$", section, re.MULTILINE)
    return QuickStart(packages=tuple(packages.split()), commands=tuple(commands))


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A command that has ended."""

    exit_code: int
    output: str
    """Both streams, in the order in which they were written."""


class FreshMachine:
    """A container in which commands are typed, by root or by an ordinary user."""

    def __init__(self, image: str, *, with_engine: bool = False) -> None:
        self.name = f"infini-ops-fresh-{uuid.uuid4().hex[:8]}"
        network = resolve_network(os.environ, read_pip_settings(os.environ), folder=ROOT)
        mounts = [f"{CACHE}:{CACHE_FOLDER}"]
        variables = {**network.environment, "DEBIAN_FRONTEND": "noninteractive"}
        if network.ca_bundle:
            mounts.append(f"{network.ca_bundle}:{CONTAINER_CA_BUNDLE}:ro")
        if network.wheelhouse:  # containers get it served; this is a machine, which serves it
            variables["PIP_FIND_LINKS"] = network.host_environment["PIP_FIND_LINKS"]
            mounts.append(f"{network.wheelhouse}:{network.wheelhouse}:ro")
        self._users = {"root": "0:0", USER: f"{USER_ID}:{USER_ID}"}
        if with_engine:
            mounts.append(f"{SOCKET}:{SOCKET}")
            self._users[USER] = f"{USER_ID}:{Path(SOCKET).stat().st_gid}"
        options = [f"--volume={mount}" for mount in mounts]
        options += [f"--env={name}={value}" for name, value in variables.items()]
        docker("volume", "create", f"--label={'='.join(LABEL)}", CACHE)
        # On this machine's network, where its own containers find what it serves.
        command = ("--network=host", "--init", *options, image, "sleep", "infinity")
        docker("run", "--detach", f"--name={self.name}", *command)
        # pip does not use a cache of another user.
        self.root(f"install --directory --owner={USER_ID} {CACHE_FOLDER}/{USER_ID}")

    def close(self) -> None:
        docker("rm", "--force", "--volumes", self.name)

    def put_tree(self, folder: str) -> None:
        """Unpack this checkout as an archive: with uncommitted changes, without ``.git``."""
        with TemporaryFile() as archive:
            write_archive(ROOT, archive, prefix=folder.strip("/"), owner=USER_ID)
            archive.seek(0)
            command = ["docker", "cp", "-", f"{self.name}:/"]
            subprocess.run(command, stdin=archive, check=True, capture_output=True)

    def type(self, command: str, *, user: str, folder: str = "/") -> Finished:
        """Run a line of a shell, and press Enter where it asks."""
        identity = self._users[user]
        options = [f"--user={identity}", f"--workdir={folder}"]
        options.append(f"--env=PIP_CACHE_DIR={CACHE_FOLDER}/{identity.split(':')[0]}")
        finished = subprocess.run(
            ["docker", "exec", "--interactive", *options, self.name, "bash", "-c", command],
            input="\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return Finished(exit_code=finished.returncode, output=finished.stdout)

    def root(self, command: str) -> str:
        """Run a line as root that has to succeed, and return what it prints."""
        finished = self.type(command, user="root")
        assert finished.exit_code == 0, finished.output
        return finished.output


def make_image() -> str:
    """Return an image with python3 alone: the offline base without what its recipe adds."""
    [listed] = re.findall(r"^packages=python3,(.+)$", RECIPE.read_text(), re.MULTILINE)
    client = DockerClient.from_env()
    client.images.build(
        fileobj=BytesIO(DOCKERFILE.format(packages=listed.replace(",", " ")).encode()),
        tag=IMAGE,
        labels=dict([LABEL]),
        forcerm=True,
    )
    client.close()
    return IMAGE


def is_local_engine() -> bool:
    """Whether the engine behind the usual socket is the one that ``docker`` uses."""
    host = docker("context", "inspect", "--format", "{{.Endpoints.docker.Host}}").strip()
    return host == f"unix://{SOCKET}"


def docker(*arguments: str) -> str:
    finished = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
