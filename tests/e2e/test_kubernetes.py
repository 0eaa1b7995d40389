"""``manifest`` for Kubernetes: its Jobs run as pods of an engine, and their results are imported.

No cluster is needed for what a pod does. `pods.py` is the part of a kubelet that starts one.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from docker.client import DockerClient

from ci.errors import ExitCode
from ci.model.results import PlatformResult, RunResult
from ci.model.verdicts import Product
from ci.store.folder import read_results
from tests.e2e.benches import engine_or_skip
from tests.e2e.fresh import is_local_engine
from tests.e2e.plans import DOCKERFILE, REQUIREMENTS
from tests.e2e.pods import PodRunner, own_as
from tests.forked import run_ci

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = "registry.lab:5000/ci"
CONFIG = """\
project: {project}
platforms:
  cpu:
    recipe: Dockerfile
    requirements: requirements.txt
    compiler_cache: false
    memory_bytes: 1073741824
    shm_size_bytes: 67108864
    environment: {{GREETING: good morning}}
read_only_root: true
stages:
- name: install
  command: python -m pip install --no-build-isolation .
- name: look
  command: python look.py
  column: none
- name: pytest
  kind: pytest
  command: python -m pytest -q tests
  network: none
artifacts: {{looked: looked.json}}
"""
# The recipes of this program make the workspace. Volumes must not hide the image's files.
RECIPE = f"""{DOCKERFILE.replace("requirements.txt", "requirements-cpu.txt")}
RUN mkdir /workspace && chown 1000 /workspace \\
    && echo kept > /home/builder/kept && install -d -m 700 /home/other && mkdir /opt/recipe
"""
FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "tiny"
version = "1"
""",
    "src/tiny/__init__.py": "ANSWER = 42\n",
    "look.py": """\
import json, os, pathlib

def tried(path):
    try:
        pathlib.Path(path).touch()
    except OSError as error:
        return error.strerror
    return True

status = pathlib.Path("/proc/self/status").read_text()
fields = dict(line.split(":\\t", 1) for line in status.splitlines() if ":\\t" in line)
places = [".", "/tmp", "/opt/venv", pathlib.Path.home(), "/opt/recipe", "/data"]
found = {
    "user": os.getuid(),
    "capabilities": [int(fields[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")],
    "privileges": fields["NoNewPrivs"],
    "home": pathlib.Path.home().joinpath("kept").read_text(),
    "written": [tried(f"{place}/a") for place in places],
    "shared": os.statvfs("/dev/shm").f_blocks > 0,
}
pathlib.Path("looked.json").write_text(json.dumps(found))
""",
    "tests/test_tiny.py": """\
import os

import pytest
import tiny

def test_answer():
    assert tiny.ANSWER == 42

def test_environment():
    assert os.environ["GREETING"] == "good morning"

def test_skipped():
    pytest.skip("so it is")
""",
    "Dockerfile": RECIPE,
    "requirements.txt": REQUIREMENTS,
    "ci.site.yaml": f"kubernetes: {{registry: '{REGISTRY}'}}\n",
}


@dataclass
class Lab:
    """A project, the claim of a cluster, and the commands on both."""

    folder: Path
    client: DockerClient

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def claim(self) -> Path:
        return self.folder / "claim"

    def ci(self, *words: object, code: int = ExitCode.PASSED) -> str:
        done = run_ci(*words, f"--results={self.results}")
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout

    @property
    def source(self) -> str:
        return f"--source={self.folder / 'project'}"

    def run_of(self, run_id: str) -> RunResult:
        return read_results(self.results / run_id / "results.json")

    def upload(self, run_id: str) -> None:
        """Copy the inputs of a run to the claim, as its pod does there."""
        place = self.claim / run_id
        shutil.copytree(self.results / run_id / "kubernetes", place)
        own_as(place, 1000)

    def fetch(self, run_id: str) -> Path:
        fetched = self.folder / "fetched" / run_id
        shutil.rmtree(fetched, ignore_errors=True)
        shutil.copytree(self.claim / run_id, fetched)
        return fetched

    def pods(self, tag: str) -> PodRunner:
        folder = self.folder / "pods"
        folder.mkdir(exist_ok=True)
        images = {f"{REGISTRY}/{tag}": tag}
        return PodRunner(client=self.client, folder=folder, claim=self.claim, images=images)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    engine_or_skip("docker").close()
    if not is_local_engine():
        pytest.skip("the Docker Engine is not this machine's own")
    project = f"pods-{uuid.uuid4().hex[:8]}"
    for name, text in {**FILES, "ci.yaml": CONFIG.format(project=project)}.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    client = DockerClient.from_env()
    yield Lab(tmp_path, client)
    client.close()


def image_of(job: dict[str, object]) -> str:
    """The image's name on this engine."""
    [name] = {line for line in json.dumps(job).split('"') if line.startswith(REGISTRY)}
    return name.removeprefix(f"{REGISTRY}/")


def comparable(row: PlatformResult) -> object:
    """What two runs of the same sources have in common."""
    assert row.pytest is not None
    counts = row.pytest.model_dump(exclude={"seconds", "summary"})
    stages = [(it.name, it.exit_code) for it in row.stages if it.name not in ("image", "sync")]
    verdict = (row.verdict.product, row.verdict.harness, row.verdict.evidence)
    return row.platform, row.label, row.built, counts, stages, verdict, sorted(row.artifacts)


def test_a_pod_gives_the_row_that_a_run_gives(lab: Lab) -> None:
    lab.ci("run", "cpu", "--engine=docker", lab.source)
    [ran] = read_results(lab.results / "latest" / "results.json").platforms
    [job] = yaml.safe_load_all(lab.ci("manifest", "cpu", lab.source))
    run_id = job["metadata"]["labels"]["infini-ci.run"]
    [pending] = lab.run_of(run_id).platforms
    assert pending.verdict.product is Product.NOT_RUN
    lab.ci("report", run_id, "--check", code=ExitCode.INFRASTRUCTURE)

    lab.upload(run_id)
    codes = lab.pods(image_of(job)).run(job)
    assert codes == {"unpack": 0, "agent": 0}
    text = lab.ci("import", lab.fetch(run_id))
    assert f"{run_id}: imported: cpu passed" in text
    [row] = lab.run_of(run_id).platforms
    own = {*ran.artifacts} - {*row.artifacts}
    assert own == {"engine-events.jsonl", "image.log"}  # the engine's records
    artifacts = {name: path for name, path in ran.artifacts.items() if name not in own}
    assert comparable(row) == comparable(ran.model_copy(update={"artifacts": artifacts}))
    assert "Kubernetes leaves pytest the network, despite `network: none`" in row.notes
    assert row.facts("engine")["name"] == "kubernetes"
    looked = json.loads((lab.results / run_id / "cpu" / "looked").read_text())
    assert looked == {
        "user": 1000,
        "capabilities": [0, 0, 0],
        "privileges": "1",
        "home": "kept\n",
        "written": [True, True, True, True, "Read-only file system", "No such file or directory"],
        "shared": True,
    }
    lab.ci("report", run_id, "--check")
    assert "already here: cpu passed" in lab.ci("import", lab.fetch(run_id))
