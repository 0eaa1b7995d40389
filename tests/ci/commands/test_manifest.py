"""``python -m ci manifest``: Jobs by the published schemas, their inputs, and Slurm's script."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from kubernetes_validate.utils import validate

from ci import cli
from ci.errors import ExitCode
from ci.manifests.kubernetes import GRACE_S
from ci.model.results import PlatformResult
from ci.model.verdicts import Harness, Product
from ci.store.folder import read_results
from tests.ci.workplace import CONTRACT, Workplace, new_workplace

# The oldest that a vendor's platform still ships, and the newest that the package knows.
VERSIONS = ("1.26", "1.37")
RESOURCES = {
    "nvidia": "nvidia.com/gpu",
    "iluvatar": "iluvatar.com/gpu",
    "metax": "metax-tech.com/gpu",
    "cambricon": "cambricon.com/mlu",
    "moore": "mthreads.com/gpu",
    "ascend": "huawei.com/Ascend910",
}
CONFIG = """\
project: tiny
platforms:
  cpu: {memory_bytes: 8589934592, shm_size_bytes: 67108864, environment: {GREETING: good}}
  nvidia: {devices: {count: 2, uuids: [GPU-a, GPU-b]}}
  iluvatar: {base_image: corex}
  metax: {}
  cambricon: {}
  moore: {devices: {privileged: true}}
  ascend: {}
read_only_root: true
stages:
- {name: build, command: python build.py, timeout_s: 60.5}
- {name: pytest, kind: pytest, command: python -m pytest -q tests, timeout_s: 100, network: none}
artifacts: {generated: out}
"""
SITE: dict[str, Any] = {"kubernetes": {"registry": "registry.lab:5000/ci"}}


@dataclass
class Lab:
    """A project with a site, and what its commands print."""

    place: Workplace
    capture: pytest.CaptureFixture[str]
    messages: str = ""
    """What the last command wrote to the standard error."""

    def site(self, **changes: object) -> None:
        self.place.write("ci.site.yaml", yaml.safe_dump({**SITE, **changes}))

    def ci(self, *words: str, code: int = ExitCode.PASSED) -> str:
        """Return the output of a command; its messages if it fails."""
        results = f"--results={self.place.results}"
        assert cli.main([*words, results]) == code, self.capture.readouterr()
        printed, self.messages = self.capture.readouterr()
        return printed if code == ExitCode.PASSED else printed + self.messages

    def manifest(self, *words: str, code: int = ExitCode.PASSED) -> str:
        return self.ci("manifest", *words, f"--source={self.place.folder / 'source'}", code=code)

    def jobs(self, *words: str) -> list[dict[str, Any]]:
        return [*yaml.safe_load_all(self.manifest(*words))]

    def row(self, run_id: str, platform: str = "cpu") -> PlatformResult:
        return read_results(self.place.results / run_id / "results.json").platform(platform)

    def pod(self, *words: str) -> Pod:
        """Return the pod of the CPU's Job."""
        return Pod(self, self.jobs("cpu", *words)[0])


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lab:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in [it for it in os.environ if it.startswith("PIP_") and it != "PIP_CONFIG_FILE"]:
        monkeypatch.delenv(name)
    found = Lab(new_workplace(tmp_path), capsys)
    found.place.write("ci.yaml", CONFIG)
    found.site()
    return found


def spec_of(job: Mapping[str, Any]) -> Any:
    return job["spec"]["template"]["spec"]


def agent_of(job: Mapping[str, Any]) -> Any:
    [agent] = spec_of(job)["containers"]
    return agent


def run_of(job: Mapping[str, Any]) -> str:
    return str(job["metadata"]["labels"]["infini-ci.run"])


# The Jobs


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_match_the_published_schemas(lab: Lab, version: str) -> None:
    lab.site(
        kubernetes={"registry": "registry.lab:5000/ci", "namespace": "lab", "claim": "runs"},
        platforms={"ascend": {"kubernetes": {"node_selector": {"lab/chip": "910b"}}}},
    )
    jobs = lab.jobs("--all")
    assert len(jobs) == 1 + len(RESOURCES)
    for job in jobs:
        assert validate(job, version, strict=True)
        assert job["metadata"]["namespace"] == "lab"
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", job["metadata"]["name"])
    assert spec_of(jobs[-1])["nodeSelector"] == {"lab/chip": "910b"}


def test_jobs_request_what_their_limits_allow(lab: Lab) -> None:
    requests = [agent_of(job)["resources"] for job in lab.jobs(*RESOURCES)]
    expected = [{it: "2" if it == "nvidia.com/gpu" else "1"} for it in RESOURCES.values()]
    assert requests == [{"requests": it, "limits": it} for it in expected]


def test_each_shard_gets_its_devices(lab: Lab) -> None:
    [job] = lab.jobs("nvidia", "--shards=3")
    assert agent_of(job)["resources"]["limits"] == {"nvidia.com/gpu": "6"}
    text = slurm(lab, "nvidia", "--shards=3")
    assert "--gres=gpu:6" in text
    assert " --shards 3 " in text


def test_limits_become_those_of_the_pod(lab: Lab) -> None:
    [job] = lab.jobs("cpu")
    spec, agent = spec_of(job), agent_of(job)
    assert agent["resources"]["limits"] == {"memory": "8589934592"}
    memory = {"emptyDir": {"medium": "Memory", "sizeLimit": "67108864"}, "name": "memory"}
    assert memory in spec["volumes"]
    assert {"name": "memory", "mountPath": "/dev/shm"} in agent["volumeMounts"]  # noqa: S108
    assert {"name": "GREETING", "value": "good"} in agent["env"]
    # Both stages with 40 s for their ends, 100 s in which no one takes the network away, the rest,
    # and the pull of the image.
    assert spec["activeDeadlineSeconds"] == 61 + 40 + 100 + 40 + 100 + 600 + 3600
    assert spec["terminationGracePeriodSeconds"] == GRACE_S
    assert (job["spec"]["backoffLimit"], spec["restartPolicy"]) == (0, "Never")


def test_pods_are_unprivileged(lab: Lab) -> None:
    for job in lab.jobs("cpu", "nvidia", "ascend"):
        spec = spec_of(job)
        assert spec["automountServiceAccountToken"] is False
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == 1000
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*spec["initContainers"], *spec["containers"]):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }


def test_only_a_configured_platform_is_privileged(lab: Lab) -> None:
    [job] = lab.jobs("moore")
    [first] = spec_of(job)["initContainers"]
    assert agent_of(job)["securityContext"] == {"privileged": True}
    assert first["securityContext"]["allowPrivilegeEscalation"] is False


def test_a_site_replaces_image_and_resource(lab: Lab) -> None:
    own = {"image": "lab/vllm:1", "resource": "huawei.com/Ascend310P"}
    lab.site(platforms={"ascend": {"kubernetes": own}})
    [job] = lab.jobs("ascend")
    agent = agent_of(job)
    assert agent["image"] == "lab/vllm:1"
    assert agent["resources"]["limits"] == {"huawei.com/Ascend310P": "1"}


def test_jobs_as_json(lab: Lab) -> None:
    printed = json.loads(lab.manifest("cpu", "nvidia", "--format=json"))
    assert (printed["apiVersion"], printed["kind"]) == ("v1", "List")
    assert [run_of(job) for job in printed["items"]] == [run_of(printed["items"][0])] * 2
    assert [validate(job, VERSIONS[-1], strict=True) for job in printed["items"]]
    assert (lab.place.results / run_of(printed["items"][0]) / "kubernetes" / "inputs").is_dir()


def test_a_script_as_json(lab: Lab) -> None:
    printed = json.loads(slurm(lab, "cpu", "nvidia", "--format=json"))
    assert [array["platforms"] for array in printed["arrays"]] == [["cpu"], ["nvidia"]]
    assert "--gres=gpu:2" in printed["arrays"][1]["request"]
    assert printed["script"].startswith("#!/bin/sh\n")
    assert f"commit={printed['commit']}\n" in printed["script"]


def test_images_to_push_are_named(lab: Lab) -> None:
    [job] = lab.jobs("cpu")
    image = agent_of(job)["image"]
    assert image.startswith("registry.lab:5000/ci/infini-ci/cpu:")
    local = image.removeprefix("registry.lab:5000/ci/")
    assert f"docker tag {local} {image}\ndocker push {image}\n" in lab.messages


# What they read


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        files = ((it.name, archive.extractfile(it)) for it in archive if it.isreg())
        return {name: file.read() for name, file in files if file is not None}


def test_inputs_are_the_sources_and_a_job_for_each_platform(lab: Lab) -> None:
    [job, _] = lab.jobs("cpu", "nvidia")
    folder = lab.place.results / run_of(job) / "kubernetes"
    assert sorted(it.name for it in folder.iterdir()) == ["cpu", "inputs", "nvidia"]
    sources = members(folder / "inputs" / "source.tar")
    assert "workspace/tests/test_a.py" in sources
    given = members(folder / "inputs" / "nvidia.tar")
    assert "opt/infini-ci/devices.py" in given
    document = json.loads(given["opt/infini-ci/job.json"])
    assert document["user"] is None
    assert not any(stage["isolated"] for stage in document["stages"])
    # The device plugin chose the devices, for this pod alone.
    assert (document["devices"]["count"], document["devices"]["uuids"]) == (2, [])
    assert document["devices"]["folder"] == "/opt/infini-ci/leases"


def test_a_wheelhouse_is_mounted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = lab.place.folder / "wheels"
    wheels.mkdir()
    (wheels / "a.whl").write_text("wheel")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    [job] = lab.jobs("cpu")
    place = lab.place.results / run_of(job) / "kubernetes" / "inputs" / "wheels"
    assert (place / "a.whl").read_text() == "wheel"
    mounts = {it["mountPath"]: it for it in agent_of(job)["volumeMounts"]}
    mount = mounts["/opt/infini-ci/wheels"]
    assert (mount["subPath"], mount["readOnly"]) == (f"{run_of(job)}/inputs/wheels", True)


# What is refused


def test_without_a_registry_there_is_no_image(lab: Lab) -> None:
    lab.site(kubernetes={})
    said = lab.manifest("cpu", code=ExitCode.USAGE)
    assert "ci.site.yaml: kubernetes.registry: got none, expected the registry from which" in said
    assert "platforms.cpu.kubernetes.image in ci.site.yaml" in said
    assert not lab.place.results.exists()


def test_passwords_are_not_printed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:hush@index.lab/simple")
    said = lab.manifest("cpu", code=ExitCode.USAGE)
    assert "manifest: cpu: got passwords in " in said
    assert "hush" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "manifest: got no platform, expected either platforms or --all"),
        (("cpu", "--all"), "manifest: got --all and cpu, expected either platforms or --all"),
        (("cpu", "--engine=docker"), "--engine: got docker, expected none: in Kubernetes"),
        (("gpu",), "unknown platform 'gpu'"),
    ],
)
def test_wrong_command_lines(lab: Lab, words: Sequence[str], said: str) -> None:
    assert said in lab.manifest(*words, code=ExitCode.USAGE)


@pytest.mark.parametrize(
    ("site", "place"),
    [
        ({"kubernetes": {"claim": "Not A Name"}}, "kubernetes.claim"),
        ({"platforms": {"cpu": {"kubernetes": {"resource": "a/b/c"}}}}, "cpu.kubernetes.resource"),
        ({"platforms": {"cpu": {"slurm": {"gres": "gpu:1"}}}}, "cpu.slurm.gres"),
        ({"platforms": {"cpu": {"slurm": {"options": ["-p x"]}}}}, "cpu.slurm.options.0"),
        ({"platforms": {"cpu": {"slurm": {"options": ["--a=$(b)"]}}}}, "cpu.slurm.options.0"),
    ],
)
def test_wrong_settings_of_a_site(lab: Lab, site: Mapping[str, Any], place: str) -> None:
    lab.site(**site)
    assert place in lab.manifest("cpu", code=ExitCode.USAGE)


# Results


@dataclass
class Pod:
    """Carries a Job out on this machine: the same programs and inputs, without its containers."""

    lab: Lab
    job: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.run_id = run_of(self.job)
        self.inputs = self.lab.place.results / self.run_id / "kubernetes"
        self.claim = self.lab.place.folder / "claim" / self.run_id
        """The folder of the run, as it is on the claim."""
        self.claim.parent.mkdir()
        subprocess.run(["cp", "-a", self.inputs, self.claim], check=True)

    @property
    def row(self) -> PlatformResult:
        return self.lab.row(self.run_id)

    def imported(self, code: int = ExitCode.PASSED) -> str:
        """Import the files so far; return what the command prints."""
        return self.lab.ci("import", str(self.fetch()), code=code)

    def check(self, code: int) -> str:
        return self.lab.ci("report", self.run_id, "--check", code=code)

    def start(self) -> subprocess.Popen[bytes]:
        volume = self.lab.place.folder / "volume"
        inputs = self.claim / "inputs"
        agent = [sys.executable, "-I", str(inputs / "agent.pyz")]
        archives = f"{inputs / 'source.tar'},{inputs / 'cpu.tar'}"
        subprocess.run([*agent, "unpack", str(volume), archives], check=True)
        document = volume / "opt" / "infini-ci" / "job.json"
        content = json.loads(document.read_text())
        content |= {"workspace": str(volume / "workspace"), "results": str(self.claim / "cpu")}
        document.write_text(json.dumps({**content, "compiler_cache": None}))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.Popen(
            [*agent, str(document)], env={**os.environ, "PATH": path}, stdout=subprocess.DEVNULL
        )

    def run(self) -> int:
        return self.start().wait()

    def fetch(self) -> Path:
        """Copy the run's folder to another place, as ``kubectl cp`` does."""
        fetched = self.lab.place.folder / "fetched" / self.run_id
        subprocess.run(["rm", "-rf", fetched], check=True)
        fetched.parent.mkdir(exist_ok=True)
        subprocess.run(["cp", "-a", self.claim, fetched], check=True)
        return fetched

    def end(self, **status: Any) -> None:
        """Record what the cluster reports of the pod."""
        labels = {"infini-ci.run": self.run_id, "infini-ci.platform": "cpu"}
        pod = {"metadata": {"name": "pod-1", "labels": labels}, "status": status}
        other = {"metadata": {"name": "other"}, "status": {"phase": "Failed", "reason": "No"}}
        (self.claim / "pods.json").write_text(json.dumps({"items": [pod, other]}))


@pytest.fixture
def pod(lab: Lab) -> Pod:
    return lab.pod()


def terminated(code: int, reason: str) -> dict[str, Any]:
    image = {"image": "registry.lab/cpu:1", "imageID": "registry.lab/cpu@sha256:0a"}
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return {"name": "agent", **image, "state": state}


def outcome(row: PlatformResult) -> tuple[Product, Harness]:
    return row.verdict.product, row.verdict.harness


def test_a_new_run_has_no_result(pod: Pod) -> None:
    assert outcome(pod.row) == (Product.NOT_RUN, Harness.INFRASTRUCTURE)
    table = pod.check(ExitCode.INFRASTRUCTURE)
    assert "kubernetes carries it out; no results were imported yet" in " ".join(table.split())


def test_files_of_a_pod_become_a_row(pod: Pod) -> None:
    assert pod.run() == 0
    pod.end(phase="Succeeded", containerStatuses=[terminated(0, "Completed")])
    (pod.claim / "cpu" / "engine-events.jsonl").write_text("{}\n")  # an engine's name
    (pod.claim / "cpu" / "link").symlink_to("/etc/passwd")
    assert pod.imported() == f"{pod.run_id}: imported: cpu passed\n"
    row = pod.row
    assert outcome(row) == (Product.PASSED, Harness.CLEAN)
    assert row.pytest is not None
    assert row.pytest.passed == 1
    assert row.facts("engine")["name"] == "kubernetes"
    image = row.facts("engine", "image")
    assert (image["reference"], image["digest"]) == ("registry.lab/cpu:1", "sha256:0a")
    assert "Kubernetes leaves pytest the network, despite `network: none`" in row.notes
    assert not {"engine-events.jsonl", "link"} & {*row.artifacts}
    assert "generated.tar.gz" in row.artifacts
    pod.check(ExitCode.PASSED)
    assert not pod.inputs.exists()  # no Job will read it
    # A second import changes nothing, and neither does one without the files.
    subprocess.run(["rm", "-r", pod.claim / "cpu"], check=True)
    assert pod.imported() == f"{pod.run_id}: already here: cpu passed\n"


def test_shards_of_a_pod_are_one_row(lab: Lab) -> None:
    lab.place.write("tests/test_b.py", "def test_b(): pass\ndef test_c(): pass\n")
    pod = lab.pod("--shards=2")
    assert pod.run() == 0
    pod.imported()
    row = pod.row
    assert row.verdict.product is Product.PASSED
    assert row.pytest is not None
    assert row.pytest.passed == 3
    assert len(row.shards) == 2


def test_a_failed_test_is_a_product_failure(lab: Lab) -> None:
    lab.place.write("tests/test_a.py", "def test_a(): assert False\n")
    pod = lab.pod()
    assert pod.run() == 1
    pod.imported()
    pod.check(ExitCode.PRODUCT_FAILURE)


def unpacking(phase: str, **state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a pod whose first container is in this state."""
    return {"phase": phase, "initContainerStatuses": [{"name": "unpack", "state": state}]}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "kubernetes returned no events of its agent"),
        ({"phase": "Pending"}, "pod pod-1 has not started on any node"),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory\nhelp"},
            "pod pod-1: Evicted: low on memory",
        ),
        (
            unpacking("Pending", waiting={"reason": "ErrImagePull", "message": "not found"}),
            "container unpack: ErrImagePull: not found",
        ),
        (
            unpacking("Failed", terminated={"exitCode": 1, "reason": "Error"}),
            "container unpack ended with exit code 1: Error",
        ),
    ],
)
def test_a_pod_that_never_ran_is_not_run(pod: Pod, status: Mapping[str, Any], said: str) -> None:
    pod.end(**status)
    pod.imported()
    assert (pod.row.verdict.product, pod.row.verdict.reason) == (Product.NOT_RUN, said)
    pod.check(ExitCode.INFRASTRUCTURE)


WAITING = """\
import pathlib, time

def test_a():
    pathlib.Path({file!r}).touch()
    while pathlib.Path({file!r}).exists():
        time.sleep(0.05)
"""


def kill_all(agent: subprocess.Popen[bytes]) -> None:
    """Kill an agent with all processes below it, as the end of a container does."""
    agent.send_signal(signal.SIGSTOP)
    below = psutil.Process(agent.pid).children(recursive=True)
    for process in (*reversed(below), agent):
        process.kill()
    agent.wait()


def test_platforms_can_be_fetched_one_by_one(lab: Lab) -> None:
    pod = lab.pod("ascend")
    assert pod.run() == 0
    fetched = pod.fetch()
    (fetched / "ascend").rmdir()
    assert "cpu passed, ascend not_run" in lab.ci("import", str(fetched))
    reason = "kubernetes carries it out; no results were imported yet"
    assert lab.row(pod.run_id, "ascend").verdict.reason == reason
    assert pod.inputs.exists()
    pod.check(ExitCode.INFRASTRUCTURE)


@pytest.fixture
def waiting(lab: Lab) -> Pod:
    """A pod whose test waits."""
    lab.place.write("tests/test_a.py", WAITING.format(file=str(lab.place.folder / "waiting")))
    return lab.pod()


def start(pod: Pod) -> subprocess.Popen[bytes]:
    """Start a pod whose test waits, until it does."""
    agent = pod.start()
    while not (pod.lab.place.folder / "waiting").exists():
        assert agent.poll() is None
    return agent


@pytest.mark.parametrize(
    ("reason", "product", "harness", "code"),
    [
        (None, Product.INCOMPLETE, Harness.LOST, ExitCode.INFRASTRUCTURE),
        # It exceeded the limit of its configuration.
        ("OOMKilled", Product.FAILED, Harness.OOM_KILLED, ExitCode.PRODUCT_FAILURE),
        ("Error", Product.INCOMPLETE, Harness.INFRASTRUCTURE, ExitCode.INFRASTRUCTURE),
    ],
    ids=["lost", "out of memory", "killed"],
)
def test_a_pod_that_was_killed_is_no_pass(
    waiting: Pod, reason: str | None, product: Product, harness: Harness, code: ExitCode
) -> None:
    kill_all(start(waiting))
    if reason:
        waiting.end(phase="Failed", containerStatuses=[terminated(137, reason)])
    waiting.imported()
    assert outcome(waiting.row) == (product, harness), waiting.row.verdict
    waiting.check(code)


def test_the_time_limit_of_a_pod_is_no_product_failure(waiting: Pod) -> None:
    agent = start(waiting)
    agent.terminate()  # as a node does, before it kills what remains
    assert agent.wait() == ExitCode.INTERRUPTED
    waiting.end(phase="Failed", reason="DeadlineExceeded", message="too long")
    waiting.imported()
    assert outcome(waiting.row) == (Product.INCOMPLETE, Harness.INFRASTRUCTURE)
    assert "pod pod-1: DeadlineExceeded: too long" in waiting.row.notes
    waiting.check(ExitCode.INFRASTRUCTURE)


def test_files_of_a_running_pod_are_judged_again(pod: Pod) -> None:
    assert pod.run() == 0
    events = pod.claim / "cpu" / "events.jsonl"
    complete = events.read_text()
    events.write_text("".join(complete.splitlines(keepends=True)[:-1]))
    pod.imported()
    assert outcome(pod.row)[1] is Harness.LOST
    assert pod.inputs.exists()
    events.write_text(complete)
    pod.imported()
    assert outcome(pod.row)[1] is Harness.CLEAN


def test_a_file_that_is_no_list_of_pods_is_refused(pod: Pod) -> None:
    (pod.claim / "pods.json").write_text("{}")
    said = pod.imported(ExitCode.USAGE)
    assert "pods.json: expected the output of kubectl get pods -o json: " in said


def test_a_changed_configuration_is_refused(lab: Lab, pod: Pod) -> None:
    lab.place.write("ci.yaml", CONFIG.replace("GREETING: good", "GREETING: bad"))
    said = pod.imported(ExitCode.USAGE)
    assert f"ci.yaml has changed since run {pod.run_id} began" in said


@pytest.mark.parametrize("is_kept", [True, False])
def test_jobs_are_judged_by_the_contract_of_their_start(lab: Lab, *, is_kept: bool) -> None:
    lab.place.write("ci.yaml", f"{CONFIG}contracts: contracts\n")
    lab.place.write("contracts/cpu.yaml", CONTRACT)
    pod = lab.pod()
    assert pod.run() == 0
    lab.place.write("contracts/cpu.yaml", CONTRACT.replace("test_a: 1", "test_a: 2"))
    if not is_kept:  # as an older version left it
        shutil.rmtree(lab.place.results / pod.run_id / "contracts")
    pod.imported()
    assert pod.row.verdict.product is (Product.PASSED if is_kept else Product.FAILED)
    assert ("no contracts of its start" in "".join(pod.row.notes)) is not is_kept


def test_a_run_that_was_opened_elsewhere_is_refused(lab: Lab, pod: Pod) -> None:
    fetched = pod.fetch()
    foreign = fetched.with_name("20260101T120000Z-0123abcd-00ff")
    fetched.rename(foreign)
    assert "got no results.json" in lab.ci("import", str(foreign), code=ExitCode.USAGE)


def test_such_a_run_cannot_be_resumed_here(lab: Lab, pod: Pod) -> None:
    said = lab.ci("run", "--resume", pod.run_id, code=ExitCode.USAGE)
    assert f"{pod.run_id} was submitted to kubernetes, expected a run that began here" in said


# Slurm


def slurm(lab: Lab, *words: str) -> str:
    lab.place.commit()
    return lab.manifest(*words, "--system=slurm")


def test_platforms_with_the_same_request_are_one_array(lab: Lab) -> None:
    lab.site(
        platforms={
            "ascend": {"slurm": {"options": ["--partition=npus"]}},
            "metax": {"slurm": {"gres": "gpu:c500"}},
        }
    )
    text = slurm(lab, "--all")
    arrays = re.findall(r"^submit '?(.*?)'? '?((?:\w| )+?)'? 0-(\d) \"\$@\" &$", text, re.MULTILINE)
    found = {platforms: options.split() for options, platforms, _ in arrays}
    assert [*found] == ["cpu", "nvidia", "iluvatar moore", "metax", "cambricon", "ascend"]
    assert found["cpu"][1:] == ["--mem=8192M"]
    assert found["nvidia"][1:] == ["--gres=gpu:2"]
    assert found["iluvatar moore"][1:] == ["--gres=gpu:1"]
    assert found["metax"][1:] == ["--gres=gpu:c500:1"]
    assert found["cambricon"][1:] == ["--gres=mlu:1"]
    assert found["ascend"][1:] == ["--gres=npu:1", "--partition=npus"]
    assert [last for *_, last in arrays] == ["0", "0", "1", "0", "0", "0"]


def test_the_time_limit_is_the_sum_of_all_parts(lab: Lab) -> None:
    seconds = 60.5 + 40 + 100 + 40 + 100 + 600 + 3600
    assert f"--time={-(-seconds // 60):.0f} " in slurm(lab, "cpu")


def test_the_script_is_valid_for_any_shell(lab: Lab) -> None:
    text = slurm(lab, "cpu", "ascend", "--engine=host", "--trust=release", "--reruns=3")
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    command = text.partition("exec ")[2].partition("}")[0].replace("\\\n", "")
    assert " --engine host --trust release --reruns 3 --source " in " ".join(command.split())


SBATCH = """\
#!/bin/sh
cat "$(dirname "$0")"/results/slurm/*/.sources/vendor/lib/test_a.py > "$(dirname "$0")/seen"
"""


def test_jobs_get_the_submodules(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    library = new_workplace(lab.place.folder / "library")
    library.write("test_a.py", "the library")
    library.commit()
    for name, value in {"COUNT": "1", "KEY_0": "protocol.file.allow", "VALUE_0": "always"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    lab.place.commit()  # makes the repository
    add = ["git", "submodule", "--quiet", "add", str(library.folder / "source"), "vendor/lib"]
    subprocess.run(add, cwd=lab.place.folder / "source", check=True)
    script = slurm(lab, "cpu")
    program = lab.place.folder / "sbatch"
    program.write_text(SBATCH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{lab.place.folder}:{os.environ['PATH']}")
    ended = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == ExitCode.INFRASTRUCTURE, ended.stderr  # no job has run
    assert (lab.place.folder / "seen").read_text() == "the library"
    assert not [*lab.place.results.glob("slurm/*/.sources")]


def test_uncommitted_changes_are_named(lab: Lab) -> None:
    lab.place.commit()
    lab.place.write("new", "")
    lab.manifest("cpu", "--system=slurm")
    assert "has uncommitted changes, which the jobs do not get" in lab.messages


def test_without_a_commit_there_is_no_script(lab: Lab) -> None:
    said = lab.manifest("cpu", "--system=slurm", code=ExitCode.USAGE)
    assert "got no commit, expected a git repository with one, which the jobs check out" in said
