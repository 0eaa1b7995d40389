"""A Slurm cluster of one node on this machine: munged, slurmctld and slurmd of the test's own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "squeue")
PATIENCE_S = 60.0
POLL_S = 0.1
SETTINGS = """\
ClusterName=tests
SlurmctldHost={host}
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
# This machine has no systemd, whose cgroups Slurm's own plugin needs.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_interval=1
SlurmdTimeout=10
KillWait=20
ReturnToService=2
MpiDefault=none
GresTypes=gpu,npu,mlu
NodeName={host} NodeAddr=127.0.0.1 CPUs={processors} Gres=gpu:1,npu:1 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
# The plugin for gpu wants device files; other names are only counted.
DEVICES = "Name=gpu File=/dev/zero\nName=npu Count=1\n"


@dataclass(frozen=True, kw_only=True)
class SlurmCluster:
    """A cluster that accepts jobs."""

    folder: Path
    node: subprocess.Popen[bytes]

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def output(self, *command: str, check: bool = True) -> str:
        """Return what a program of Slurm prints."""
        done = subprocess.run(
            command, env=self.environment, check=check, capture_output=True, text=True
        )
        return done.stdout


def wait_until(is_reached: Callable[[], bool], what: str) -> None:
    deadline = monotonic() + PATIENCE_S
    while not is_reached():
        assert monotonic() < deadline, f"{what}: not within {PATIENCE_S:.0f} s"
        sleep(POLL_S)


def _two_free_ports() -> tuple[int, int]:
    """Both are taken before one is released: else they may be the same."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        return one.getsockname()[1], two.getsockname()[1]


@contextmanager
def _daemon(
    name: str, *options: str, log: Path, variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [name, *options], env={**os.environ, **variables}, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """Start a cluster in a folder with a short path, and end it."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if missing := [name for name in PROGRAMS if not shutil.which(name, path=path)]:
        pytest.skip(f"Slurm is not installed: no {', '.join(missing)}")
    if os.getuid() != 0:
        pytest.skip("slurmd needs root")
    host = socket.gethostname().partition(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    controller_port, node_port = _two_free_ports()
    settings = SETTINGS.format(
        folder=folder,
        host=host,
        processors=os.cpu_count(),
        controller_port=controller_port,
        node_port=node_port,
    )
    (folder / "slurm.conf").write_text(settings)
    (folder / "gres.conf").write_text(DEVICES)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    variables = {"PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}
    munged = [
        "--foreground",
        "--force",
        f"--socket={folder}/munge.socket",
        f"--key-file={key}",
        f"--pid-file={folder}/munge.pid",
        f"--seed-file={folder}/munge.seed",
    ]
    with ExitStack() as daemons:

        def start(name: str, *options: str) -> subprocess.Popen[bytes]:
            log = folder / f"{name}.log"
            daemon = _daemon(name, *options, log=log, variables=variables)
            return daemons.enter_context(daemon)

        start("munged", *munged)
        wait_until((folder / "munge.socket").exists, "munged")
        start("slurmctld", "-D", "-i")
        cluster = SlurmCluster(folder=folder, node=start("slurmd", "-D"))
        command = ("sinfo", "--noheader", "--format=%t")
        wait_until(lambda: cluster.output(*command, check=False).strip() == "idle", "the node")
        yield cluster
