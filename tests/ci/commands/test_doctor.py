"""Doctor's findings from facts, and its output."""

from __future__ import annotations

import fcntl
import json
import os
import ssl
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ci import cli
from ci.agent.lease import Detection
from ci.engines import devices
from ci.engines.checks import (
    Check,
    Finding,
    Severity,
    carry_out,
    check_disk,
    error_findings,
    judge_clock,
    ok,
    problem,
    unknown,
    warning,
)
from ci.engines.devices import (
    held_leases,
    judge_files,
    judge_lease_folder,
    judge_probe,
    judge_runtimes,
)
from ci.engines.docker.doctor import (
    judge_architecture,
    judge_engine,
    judge_unpullable,
    parse_free,
)
from ci.engines.host import prerequisites
from ci.errors import ConfigError, ExitCode, InfrastructureError
from ci.model.plan import DevicePlan, EngineKind, EnginePlan, Exposure, NetworkPlan
from ci.model.platforms import OFFLINE_BASE_IMAGE, PLATFORMS
from ci.upkeep.doctor.network import (
    index_urls,
    judge_ca_bundle,
    judge_certificates,
    judge_index,
    judge_wheelhouse,
    network_checks,
)
from ci.upkeep.doctor.output import exit_code, findings_json, print_findings
from ci.util.invocation import REPOSITORY
from tests.built import make_wheel
from tests.ci.made_plans import CONFIG, INPUTS, plan

Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

NOW = datetime(2026, 3, 1, tzinfo=UTC)
INFO = {
    "ServerVersion": "27.3.1",
    "Name": "gpu-1",
    "Architecture": "x86_64",
    "NCPU": 64,
    "MemTotal": 512 * 10**9,
    "DockerRootDir": "/var/lib/docker",
}
ENGINE = EnginePlan(name="gpus", kind=EngineKind.DOCKER, docker_host="ssh://gpu-1")


def levels(findings: Iterable[Finding]) -> list[Severity]:
    return [found.level for found in findings]


# Findings


def test_exit_codes() -> None:
    fine = [
        ok("a", "b"),
        unknown("a", "b"),
        warning("a", "b", expected="c", remedy="d"),
    ]
    broken = problem("a", "b", remedy="c")
    wrong = list(error_findings("a", ConfigError("b")))
    assert exit_code(fine) == ExitCode.PASSED
    assert exit_code([*fine, broken]) == ExitCode.INFRASTRUCTURE
    assert exit_code([broken, *wrong]) == ExitCode.USAGE


def test_every_line_of_an_error_is_a_finding_and_the_last_has_the_remedy() -> None:
    first, second = error_findings("configuration", ConfigError("one\ntwo", remedy="do it"))
    assert (first.found, first.remedy) == ("one", None)
    assert (second.found, second.remedy) == ("two", "do it")


def test_findings_as_text(capsys: Output) -> None:
    findings = [
        ok("git", "2.39"),
        problem("index", "https://me:pw@host/ [red]is\x1b[31m down", expected="up", remedy="up it"),
    ]
    print_findings(findings, Console(width=20))
    assert capsys.readouterr().out.splitlines() == [
        "ok       git: 2.39",
        "problem  index: https://***@host/ [red]is down",
        "         expected: up",
        "         remedy: up it",
        "1 ok, 1 problem",
    ]


def test_findings_as_json() -> None:
    document = json.loads(findings_json([problem("index", "https://me:pw@host/", remedy="x")]))
    assert document == {
        "exit_code": 3,
        "install": None,
        "findings": [
            {
                "level": "problem",
                "subject": "index",
                "found": "https://***@host/",
                "expected": None,
                "remedy": "x",
                "package": None,
                "configuration": False,
            }
        ],
    }


@pytest.mark.parametrize(
    ("seconds", "level", "found"),
    [
        (60, Severity.OK, "within a minute of this machine's"),
        (-60, Severity.OK, "within a minute of this machine's"),
        (61, Severity.WARNING, "61 s ahead of this machine's"),
        (-3600, Severity.WARNING, "3,600 s behind this machine's"),
    ],
)
def test_clocks(seconds: int, level: Severity, found: str) -> None:
    judged = judge_clock("clock", NOW + timedelta(seconds=seconds), NOW)
    assert (judged.level, judged.found) == (level, found)


# Checks


def test_checks_run_in_parallel_and_are_reported_in_order() -> None:
    second_is_there = threading.Event()

    def first() -> Iterator[Finding]:
        assert second_is_there.wait(60)
        yield ok("first", "")

    def second() -> Iterator[Finding]:
        second_is_there.set()
        yield ok("second", "")

    checks = [Check(subject="a", look=first, limit_s=60), Check(subject="b", look=second)]
    assert [found.subject for found in carry_out(checks)] == ["first", "second"]


def test_what_does_not_answer_is_unknown() -> None:
    answered = threading.Event()

    def look() -> Iterator[Finding]:
        answered.wait()
        yield ok("slow", "too late")

    [found] = carry_out([Check(subject="slow", look=look, limit_s=0.1)])
    answered.set()
    assert (found.level, found.found) == (Severity.UNKNOWN, "no answer within 0.1 s")


def test_what_was_found_before_an_error_stays() -> None:
    def look() -> Iterator[Finding]:
        yield ok("a", "begun")
        raise InfrastructureError("gone")

    assert [found.found for found in carry_out([Check(subject="a", look=look)])] == [
        "begun",
        "gone",
    ]


@pytest.mark.parametrize(
    "error", [InfrastructureError("gone"), OSError("gone")], ids=["typed", "system"]
)
def test_an_error_is_a_problem_of_its_check_only(error: Exception) -> None:
    def look() -> Iterator[Finding]:
        raise error
        yield

    checks = [Check(subject="a", look=look), Check(subject="b", look=lambda: [ok("b", "")])]
    assert levels(carry_out(checks)) == [Severity.PROBLEM, Severity.OK]


def test_a_mistake_of_the_program_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError, match="division"):
        carry_out([Check(subject="a", look=lambda: [ok("a", str(1 / 0))])])


# This machine, the network


@pytest.mark.parametrize(
    ("free", "level"),
    [
        (5 * 10**9, Severity.OK),
        (5 * 10**9 - 1, Severity.WARNING),
        (5 * 10**8 - 1, Severity.PROBLEM),
    ],
)
def test_disks(free: int, level: Severity) -> None:
    assert check_disk("disk", "/x", free, remedy="").level is level


@pytest.mark.parametrize(
    ("status", "level"),
    [(200, Severity.OK), (404, Severity.OK), (401, Severity.PROBLEM), (503, Severity.PROBLEM)],
)
def test_answers_of_an_index(status: int, level: Severity) -> None:
    found = judge_index("https://me:pw@host/simple/pip/", status)
    assert found.level is level
    assert "pw" not in found.found
    assert ("password" in (found.remedy or "")) is (status == 401)


def test_what_is_asked_of_an_index() -> None:
    environment = {
        "PIP_INDEX_URL": "https://a/simple/",
        "PIP_EXTRA_INDEX_URL": "https://b https://c/",
        "PIP_FIND_LINKS": "https://d/links.html /folder",
    }
    probed = ("https://a/simple/pip/", "https://b/pip/", "https://c/pip/", "https://d/links.html")
    assert index_urls(environment) == probed
    assert index_urls({}) == ("https://pypi.org/simple/pip/",)


def test_an_index_that_is_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "an index"
    folder.mkdir()
    network = NetworkPlan(environment={}, host_environment={"PIP_INDEX_URL": folder.as_uri()})
    [check] = network_checks(network)
    [found] = check.look()
    assert found.level is Severity.OK
    assert found.found == f"{folder} is a folder of this machine, which no container sees"
    folder.rmdir()
    [gone] = check.look()
    assert (gone.level, gone.found) == (Severity.WARNING, f"{folder} is not there")


def certificate(name: str, year: int) -> dict[str, Any]:
    subject = ((("countryName", "XX"),), (("commonName", name),))
    return {"subject": subject, "notAfter": f"Jan  1 00:00:00 {year} GMT"}


def test_certificates() -> None:
    old, new = certificate("old", 2020), certificate("new", 2030)
    path = Path("ca.pem")
    assert (
        judge_certificates(path, [new], NOW).found == "ca.pem: 1 certificate, none of them expired"
    )
    some = judge_certificates(path, [old, new], NOW)
    assert (some.level, some.found[-14:]) == (Severity.OK, "m expired: old")
    assert judge_certificates(path, [old], NOW).level is Severity.PROBLEM
    assert judge_certificates(path, [], NOW).level is Severity.PROBLEM


def test_a_ca_bundle_without_certificates(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    found = judge_ca_bundle(path)
    assert (found.level, found.expected) == (Severity.PROBLEM, "PEM")


def test_the_bundle_of_this_machine() -> None:
    path = ssl.get_default_verify_paths().cafile
    if path is None:
        pytest.skip("this machine's certificates are in no single file")
    assert judge_ca_bundle(Path(path)).level is Severity.OK


def test_wheelhouses(tmp_path: Path) -> None:
    assert judge_wheelhouse(tmp_path).level is Severity.WARNING
    (tmp_path / "a-1-py3-none-any.whl").touch()
    assert judge_wheelhouse(tmp_path).found == f"{tmp_path}: 1 archive"


# Engines and images


@pytest.mark.parametrize("version", ["20.10.24+dfsg1", "27.3.1", "29.0.0-rc.1"])
def test_a_suitable_engine(version: str) -> None:
    found = judge_engine(ENGINE, {**INFO, "ServerVersion": version})
    assert found.level is Severity.OK
    assert found.found == (
        f"Docker Engine {version} on gpu-1, ssh://gpu-1, x86_64, 64 processors, 512.0 GB of memory"
    )


def test_an_engine_that_is_too_old() -> None:
    found = judge_engine(ENGINE, {**INFO, "ServerVersion": "19.03.15"})
    assert (found.level, found.expected) == (Severity.WARNING, "20.10 or newer")


def test_an_engine_with_more_capacity_than_processors() -> None:
    found = judge_engine(replace(ENGINE, capacity=65), INFO)
    assert found.level is Severity.WARNING
    assert "engines.gpus.capacity" in (found.remedy or "")


def test_times_and_sizes_of_an_engine() -> None:
    moment = datetime.fromisoformat("2026-11-21T11:12:24.783448692Z")
    assert moment == datetime(2026, 11, 21, 11, 12, 24, 783448, tzinfo=UTC)
    printed = "Filesystem 1024-blocks Used Available Capacity Mounted on\noverlay 100 60 40 60% /\n"
    assert parse_free(printed) == 40 * 1024


def test_architectures() -> None:
    assert not list(judge_architecture("image", ["arm64", "amd64"], INFO))
    assert not list(judge_architecture("image", [], INFO))  # a registry may omit it
    [found] = judge_architecture("image", ["arm64"], INFO)
    assert found.found == "it is for arm64"
    assert found.expected == "amd64, the architecture of the engine on gpu-1"


MAKE = "docker/make-base-image infini-ops-base:bookworm"


@pytest.mark.parametrize(
    ("platform", "base", "has_offline", "level", "remedy"),
    [
        pytest.param(
            "cpu",
            None,
            False,
            Severity.WARNING,
            f"To make the offline base before a run does: {MAKE}",
            id="default",
        ),
        pytest.param(
            "cpu",
            None,
            True,
            Severity.WARNING,
            "To use the usual base, load it with docker load.",
            id="made",
        ),
        pytest.param(
            "cpu",
            "python:3.11-slim",
            False,
            Severity.PROBLEM,
            f"Make a base without a registry ({MAKE}) and name infini-ops-base:bookworm in"
            " INFINI_CI_BASE_IMAGE_CPU or as platforms.cpu.base_image in ci.site.yaml",
            id="configured",
        ),
        pytest.param(
            "nvidia",
            None,
            False,
            Severity.PROBLEM,
            "Load the vendor's archive (docker load) and name it in INFINI_CI_BASE_IMAGE_NVIDIA or"
            " as platforms.nvidia.base_image in ci.site.yaml",
            id="vendor",
        ),
    ],
)
def test_a_base_image_that_cannot_be_pulled(
    platform: str, base: str | None, has_offline: bool, level: Severity, remedy: str
) -> None:
    """The remedy names a script of this repository, for the platforms that it serves."""
    config = {**CONFIG, "platforms": {platform: {}}}
    image = plan(config, replace(INPUTS, base_image=base)).needed_image
    found = judge_unpullable(platform, image, "no such host", has_offline=has_offline)
    assert (found.level, found.remedy) == (level, remedy)
    if MAKE in remedy:
        named = plan(config, replace(INPUTS, base_image=OFFLINE_BASE_IMAGE)).needed_image
        assert named.offline_base_command == (MAKE.split()[0],)
        assert os.access(REPOSITORY / MAKE.split()[0], os.X_OK)


# Devices


def policy(**changes: Any) -> DevicePlan:
    facts = PLATFORMS["nvidia"].devices
    assert facts is not None
    plan = DevicePlan(
        facts=facts,
        count=1,
        uuids=(),
        exposure=Exposure.AUTO,
        privileged=False,
        wait_s=60,
        busy_memory=0.1,
    )
    return replace(plan, **changes)


HELD = {"MIG_held": "run r1"}


def device(uuid: str, *, used: float | None = 0, health: str = "healthy") -> dict[str, Any]:
    return {"uuid": uuid, "health": health, "memory_used": used, "memory_total": 100}


def judged(plan: DevicePlan, *found: dict[str, Any]) -> Finding:
    return judge_probe("devices", plan, Detection("devices", devices=found), HELD)


def test_free_devices() -> None:
    found = judged(policy(), device("a", used=10), device("b", used=11))
    assert (found.level, found.found) == (Severity.OK, "a free, b busy (11% of its memory)")


def test_devices_that_a_run_would_wait_for() -> None:
    plan = policy(count=2)
    others = ({"used": 50}, {"used": None}, {"health": "unknown"}, {"health": "unhealthy"})
    for other in (*(device("b", **state) for state in others), device("MIG/held")):
        found = judged(plan, device("a"), other)
        assert (found.level, found.expected) == (
            Severity.WARNING,
            "2 devices (devices.count), free",
        )
        assert found.remedy == "A run waits up to 60 s for them (devices.wait_s)."


def test_a_named_device_may_lack_its_state() -> None:
    plan = policy(uuids=("a",))
    assert judged(plan, device("a", health="unknown", used=None)).found == "a free"
    assert judged(plan, device("a", health="unhealthy")).found == "a unhealthy"


def test_a_device_that_a_run_holds() -> None:
    assert judged(policy(), device("MIG/held")).found == "MIG/held held by run r1"


def test_more_devices_than_there_are() -> None:
    assert judged(policy(count=2), device("a")).level is Severity.PROBLEM
    found = judged(policy(uuids=("c",)), device("a"))
    assert (found.level, found.found) == (Severity.PROBLEM, "none of the allowed devices")


def test_what_is_not_detected() -> None:
    none = judge_probe("devices", policy(), Detection("none", "not on the bus"), {})
    assert (none.level, none.found) == (Severity.PROBLEM, "not on the bus")
    hidden = judge_probe("devices", policy(), Detection("unknown", "no library"), {})
    assert (hidden.level, hidden.found) == (Severity.UNKNOWN, "detection failed: no library")


def test_device_files() -> None:
    assert judge_files("devices", {"/dev/a*": ["/dev/a0", "/dev/a1"]}).level is Severity.OK
    found = judge_files("devices", {"/dev/a*": ["/dev/a0"], "/dev/b": []})
    assert (found.level, found.found) == (Severity.PROBLEM, "no device file /dev/b; found /dev/a0")


def test_runtimes_of_an_engine() -> None:
    assert not list(judge_runtimes("devices", policy(), ["runc", "nvidia"]))
    assert levels(judge_runtimes("devices", policy(), ["runc"])) == [Severity.WARNING]
    assert not list(judge_runtimes("devices", policy(exposure=Exposure.FILES), ["runc"]))


def test_leases_and_who_holds_them(tmp_path: Path) -> None:
    assert held_leases(tmp_path / "not-yet") == {}
    owner = {"run": "r1", "platform": "nvidia", "user": "me"}
    process = {"pid": 1, "started": 1, "boot": "b", "namespace": "n", "since": 1.0}
    named = json.dumps({**owner, **process})
    for name, text in (("GPU-a", named), ("GPU-b", ""), ("GPU-c", "")):
        (tmp_path / f"{name}.lock").write_text(text)
    with (tmp_path / "GPU-a.lock").open() as first, (tmp_path / "GPU-b.lock").open() as second:
        for lock in (first, second):
            fcntl.flock(lock, fcntl.LOCK_EX)
        assert held_leases(tmp_path) == {
            "GPU-a": "run r1 (nvidia) of user me",
            "GPU-b": "a run that has not recorded its name",
        }


def test_lease_folders(tmp_path: Path) -> None:
    assert judge_lease_folder("devices", tmp_path / "not" / "yet").level is Severity.OK
    (tmp_path / "leases").touch()
    found = judge_lease_folder("devices", tmp_path / "leases")
    assert (found.level, found.remedy) == (
        Severity.PROBLEM,
        f"As root: install -d -m 1777 {tmp_path / 'leases'}",
    )


# The command


class _Index(BaseHTTPRequestHandler):
    """An index whose clock is an hour slow."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def date_time_string(self, timestamp: float | None = None) -> str:
        assert timestamp is None
        return super().date_time_string(datetime.now(UTC).timestamp() - 3600)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Index) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: Patch) -> Path:
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "INFINI_CI_SITE"):
        monkeypatch.delenv(name, raising=False)
    # The settings of this machine's pip would lead to network requests.
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    path = tmp_path / "ci.yaml"
    path.write_text("project: tiny\nplatforms:\n  cpu: {}\n  moore: {simulated: true}\n")
    return path


def doctor(config: Path, *arguments: str) -> int:
    options = [f"--config={config}", f"--results={config.parent / 'results'}"]
    return cli.main(["doctor", *options, *arguments])


def test_a_wrong_clock_is_the_only_warning_of_a_good_machine(
    config: Path, index: str, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index)
    assert doctor(config, "--engine=host") == ExitCode.PASSED
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"ok       configuration: {config}, no ci.site.yaml: cpu, moore"
    assert f"ok       package index: {index}/pip/ answers (200)" in lines
    [slow] = [line for line in lines if line.startswith("warning  clock of 127.0.0.1: ")]
    assert slow.endswith(" s behind this machine's")
    assert any(line.startswith("ok       engine host: a virtual environment on") for line in lines)
    assert "ok       devices of moore: simulated: no vendor hardware is needed or used" in lines
    assert not (config.parent / "results").exists()


def test_what_all_platforms_need_of_this_machine_is_looked_at_once(
    config: Path, index: str, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index)
    available = count(8)  # GB: the free space changes between two calls

    def memory(**_options: bool) -> Finding:
        return ok("memory", f"{next(available)} GB available")

    monkeypatch.setattr(prerequisites, "check_memory", memory)
    doctor(config, "--engine=host")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "memory" in line] == ["ok       memory: 8 GB available"]


def test_an_index_that_cannot_be_reached(config: Path, monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:pw@127.0.0.1:1/simple")
    assert doctor(config, "--engine=host", "--format=json") == ExitCode.INFRASTRUCTURE
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 3
    [found] = [found for found in document["findings"] if found["subject"] == "package index"]
    assert found["found"].startswith("http://***@127.0.0.1:1/simple/pip/ cannot be reached from")
    assert "Connection refused" in found["found"]


@pytest.mark.parametrize("has_torch", [False, True])
def test_the_torch_of_a_vendors_python(
    config: Path, has_torch: bool, index: str, monkeypatch: Patch, capsys: Output
) -> None:
    python = config.with_name("python")
    facts = '{"version": [3, 12, 1], "include": "/usr/include"}'
    asked = f"has-torch) {'echo $0' if has_torch else 'exit 1'};; 'import torch;'*) echo 2.9;;"
    python.write_text(f"#!/bin/sh\ncase $2 in {asked} *) echo '{facts}';; esac\n")
    python.chmod(0o755)
    config.write_text("project: tiny\nplatforms:\n  nvidia: {devices: {count: 0}}\n")
    monkeypatch.setenv("PIP_INDEX_URL", index)
    monkeypatch.setenv("INFINI_CI_PYTHON_NVIDIA", str(python))
    doctor(config, "--engine=host")
    lines = capsys.readouterr().out.splitlines()
    assert f"ok       Python: Python 3.12.1 ({python})" in lines
    found = f"ok       torch of nvidia: torch 2.9 of {python}"
    lacking = f"warning  torch of nvidia: {python} has no torch"
    assert (found if has_torch else lacking) in lines


@pytest.mark.parametrize("without_index", [False, True])
def test_a_folder_of_wheels_in_place_of_an_index(
    config: Path, without_index: bool, monkeypatch: Patch, capsys: Output
) -> None:
    wheels = config.parent / "the wheels"
    make_wheel(wheels, "tiny-tool", "1.0", requires="tiny-part>=2")
    make_wheel(wheels, "tiny-part", "2.1")
    (config.parent / "needs.txt").write_text("tiny-tool\n")
    config.write_text("project: tiny\nplatforms:\n  cpu: {requirements: needs.txt}\n")
    network = f"network: {{pip_find_links: '{wheels.as_uri()}'}}\n"
    if without_index:
        network = network.replace("}", ", pip_no_index: true}")
    (config.parent / "ci.site.yaml").write_text(network)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")

    def index() -> dict[str, Any]:
        document = json.loads(capsys.readouterr().out)
        [found] = [each for each in document["findings"] if each["subject"] == "package index"]
        return {**found, "exit_code": document["exit_code"]}

    assert doctor(config, "--engine=host", "--format=json") == ExitCode.PASSED
    assert f"{wheels} has every requirement" in index()["found"]
    [part] = wheels.glob("tiny_part-*")
    part.unlink()
    assert doctor(config, "--engine=host", "--format=json") == ExitCode.INFRASTRUCTURE
    found = index()
    assert found["level"] == "problem"
    assert ("tiny-part>=2" in found["found"]) is without_index
    assert ("Connection refused" in found["found"]) is not without_index


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (
            "print('library says hello')",
            "the probe did not answer in JSON: 'library says hello\\n'",
        ),
        ("import os; os.abort()", "the probe was killed by SIGABRT"),
        ("raise SystemExit('no')", "the probe ended with exit code 1: no"),
    ],
)
def test_a_probe_that_fails(
    program: str, reason: str, config: Path, index: str, monkeypatch: Patch, capsys: Output
) -> None:
    path = config.with_name("probe.py")
    path.write_text(program)
    monkeypatch.setattr(devices, "PROBE", path)
    monkeypatch.setenv("PIP_INDEX_URL", index)
    config.write_text("project: tiny\nplatforms:\n  nvidia: {}\n")
    doctor(config, "--engine=host")
    shown = capsys.readouterr().out.splitlines()
    assert f"unknown  devices of nvidia: detection failed: {reason}" in shown


def test_all_that_is_wrong_with_the_configuration(config: Path, capsys: Output) -> None:
    config.write_text("project: tiny\nplatform: {}\nplatforms:\n  cpx: {}\n")
    assert doctor(config) == ExitCode.USAGE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("problem  configuration: ci.yaml:2: platform: got an unknown key")
    assert lines[1].startswith("problem  configuration: ci.yaml:4: platforms.cpx: got 'cpx'")
    assert lines[-1] == "2 problems"


def test_an_unknown_engine_is_reported_once(
    config: Path, index: str, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index)
    assert doctor(config, "--engine=hots") == ExitCode.USAGE
    wrong = "problem  configuration of cpu, moore: unknown engine 'hots', expected one of"
    assert capsys.readouterr().out.count(wrong) == 1


def test_an_engine_that_does_not_answer(
    config: Path, index: str, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert doctor(config, "--engine=docker", "cpu") == ExitCode.INFRASTRUCTURE
    shown = capsys.readouterr().out
    assert "problem  engine docker: no Docker Engine answers" in shown
    assert "         remedy: " in shown
