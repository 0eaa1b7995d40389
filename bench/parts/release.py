"""The cost of the orchestrator: a tiny project on seven platforms, in real containers.

Without a Docker Engine nothing is measured: the host engine creates a virtual environment for every
run, which takes longer than everything that is measured here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.context import ROOT, Context, proportional_size
from bench.rows import Measurement, MeasurementError
from ci.facts.events import parse_events
from ci.model.platforms import OFFLINE_BASE_IMAGE, PLATFORMS
from ci.model.results import RunResult
from ci.protocol.agent_files import EVENTS
from ci.protocol.events import StageStarted
from ci.store.folder import read_results

SOCKET = "unix:///var/run/docker.sock"
CPU_SECONDS = 10  # of each platform's build; long compared with the measured overhead
SAMPLE_SECONDS = 0.2  # short compared with the 10 s of a stage
LOG_CHARACTERS = 4000  # last part of the output of a failed run
ENGINE = "seven"
SEVEN = tuple(PLATFORMS)[:7]  # the goals are for seven platforms
PLATFORM = {"recipe": "Dockerfile", "base_image": OFFLINE_BASE_IMAGE, "devices": {"count": 0}}
CONFIG = {
    "project": "bench",
    "platforms": dict.fromkeys(SEVEN, PLATFORM),
    "stages": [
        {"name": "build", "command": f"python spin.py {CPU_SECONDS}"},
        {"name": "pytest", "kind": "pytest", "command": "python -m pytest test_nothing.py"},
    ],
}
SITE = {"engines": {ENGINE: {"docker_host": SOCKET, "capacity": len(SEVEN)}}}
FILES = {
    "ci.yaml": json.dumps(CONFIG),  # JSON is also YAML
    "ci.site.yaml": json.dumps(SITE),
    "spin.py": "import sys, time\nwhile time.process_time() < float(sys.argv[1]): pass\n",
    "test_nothing.py": "def test_nothing(): pass\n",
}


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One call of the command, measured from outside."""

    result: RunResult
    wall_s: float
    first_stage_s: float  # from the call until the first stage of any platform
    memory_mb: float  # peak of the sum over all its processes


def measure(context: Context) -> Iterator[Measurement]:
    """One platform alone, then all seven at once; an earlier run has built the images."""
    folder = context.scratch / "release"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "bench" / "release" / "Dockerfile", folder)
    _run(context, folder, "--all")
    alone, together = _run(context, folder, "cpu"), _run(context, folder, "--all")
    [platform] = alone.result.platforms
    stages = sum(stage.seconds or 0 for stage in platform.stages if stage.name != "sync")
    note = f"{alone.wall_s:.1f} s wall, stages and image {stages:.1f} s"
    yield Measurement(key="release-overhead", value=alone.wall_s - stages, note=note)
    yield Measurement(key="release-first-stage", value=alone.first_stage_s)
    used = [stage for platform in together.result.platforms for stage in platform.stages]
    cpu_seconds = sum((stage.cpu_user_s or 0) + (stage.cpu_system_s or 0) for stage in used)
    cores = len(os.sched_getaffinity(0))
    least = cpu_seconds / cores
    added = 100 * (together.wall_s / least - 1)
    note = f"{together.wall_s:.1f} s wall, stages {least:.1f} s on {cores} cores"
    yield Measurement(key="release-added", value=added, note=note)
    note = f"proportional, {len(SEVEN)} platforms at once"
    yield Measurement(key="release-memory", value=together.memory_mb, note=note)


def _run(context: Context, folder: Path, *platforms: str) -> _Run:
    results, log = context.scratch / "results", context.scratch / "release.log"
    command = [sys.executable, "-m", "ci", "run", *platforms, "--engine", ENGINE]
    command += ["--config", str(folder / "ci.yaml"), "--results", str(results)]
    begun, start = time.time(), time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        memory = 0
        while process.poll() is None:
            memory = max(memory, sum(map(proportional_size, (process.pid, *_workers(process.pid)))))
            time.sleep(SAMPLE_SECONDS)
    wall = time.monotonic() - start
    if process.returncode != 0:
        tail = log.read_text(encoding="utf-8", errors="replace")[-LOG_CHARACTERS:]
        raise MeasurementError(f"{' '.join(command)} ended with {process.returncode}:\n{tail}")
    result = read_results(results / "latest" / "results.json")
    logs = [results / "latest" / platform.platform / EVENTS for platform in result.platforms]
    records = [parse_events(log.read_text().splitlines()) for log in logs]
    stages = [
        time.epoch
        for record in records
        for event, time in zip(record.events, record.times, strict=True)
        if isinstance(event, StageStarted)
    ]
    return _Run(
        result=result, wall_s=wall, first_stage_s=min(stages) - begun, memory_mb=memory / 1e6
    )


def _workers(process: int) -> list[int]:
    """The child processes that run the same program."""
    with suppress(OSError):
        children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
        command = Path(f"/proc/{process}/cmdline").read_bytes()
        commands = {int(it): Path(f"/proc/{it}/cmdline").read_bytes() for it in children.split()}
        return [child for child, its_command in commands.items() if its_command == command]
    return []
