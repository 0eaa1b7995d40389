"""A kit made here and carried out on a vendor's machine without a network: the same table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ci.errors import ExitCode
from ci.util.invocation import REPOSITORY
from tests.built import built_once, make_wheel
from tests.e2e.fresh import LABEL, USER, USER_ID, docker
from tests.e2e.test_bundle import without_network
from tests.e2e.test_vendor_python import OWN, make_machine

# It takes 60 s on a busy machine; tests/ci/upkeep/test_kit_parts.py has the parts.
pytestmark = pytest.mark.complete

CONFIG = """\
project: tiny
platforms:
  nvidia: {requirements: needs.txt, devices: {count: 0}}
stages:
- {name: install, command: "python -m pip install .[dev] --no-build-isolation"}
- {name: pytest, kind: pytest, command: python -m pytest -q tests}
- name: bench
  kind: benchmark
  command: python bench.py
  benchmarks: out.json
  on_request: true
contracts: contracts
selection: {variable: TINY_OPERATORS, smoke: few}
"""
PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "tiny"
version = "1"
dependencies = ["torch>=2"]
optional-dependencies.dev = ["wanted-only-here"]

[tool.setuptools]
py-modules = []
"""
TESTS = f"""\
import os
import pytest, torch, wanted_only_here

def test_torch():
    assert torch.__version__ == {OWN!r}

@pytest.mark.skipif(os.environ["TINY_OPERATORS"] == "few", reason="not selected")
def test_more():
    assert "INFINI_TINY_FAILS" not in os.environ
"""
BENCH = """\
import json, torch
row = {"name": "empty", "value": 0.5, "unit": "s", "direction": "lower"}
json.dump({"benchmarks": [row]}, open("out.json", "w"))
"""


@dataclass(frozen=True)
class Kit:
    """A kit, and the vendor's machine."""

    folder: Path
    machine: Path

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Carry out steps without a network, and without this machine's variables."""
        environment = {
            "HOME": str(self.folder.parent),
            "PATH": os.pathsep.join([str(self.machine / "vendor" / "bin"), "/usr/bin", "/bin"]),
            "PIP_CONSTRAINT": "/none",  # some vendors' images have one
            **variables,
        }
        return subprocess.run(
            [*without_network(), str(self.folder / "run"), *words],
            cwd=self.folder.parent,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def outcomes(self) -> dict[str, dict[str, Any]]:
        steps = json.loads((self.folder / "report" / "steps.json").read_text())
        return {it["step"]: it for it in steps}


def ci(*words: object, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ci", *map(str, words)],
        cwd=REPOSITORY,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    tmp_path = tmp_path_factory.mktemp("kit")
    project, wheels = tmp_path / "project", tmp_path / "wheels"
    (project / "tests").mkdir(parents=True)
    texts = {"ci.yaml": CONFIG, "pyproject.toml": PROJECT, "bench.py": BENCH}
    texts |= {"needs.txt": "pytest\npytest-reportlog\nsetuptools\n", "tests/test_it.py": TESTS}
    for name, text in texts.items():
        (project / name).write_text(text)
    git = ("git", "-C", str(project), "-c", "user.name=t", "-c", "user.email=t@t")
    for command in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "first")):
        subprocess.run([*git, *command], check=True)
    make_wheel(wheels, "wanted-only-here", "1.0")
    made = tmp_path / "the kit"
    words = ("kit", "nvidia", "--source", project, "--output", made)
    done = ci(*words, PIP_FIND_LINKS=wheels.as_uri())
    assert done.returncode == ExitCode.PASSED, done.stderr
    # The sources' torch is the vendor's: no other one travels.
    assert not [*made.glob("wheels/torch-*"), *made.glob("wheels/nvidia*")]
    return Kit(folder=made, machine=built_once(tmp_path_factory, "vendor", make_machine))


def test_a_changed_file_and_a_python_that_is_no_use(kit: Kit) -> None:
    cases = {"full": "program/ci/cli.py", "doctor": "wheels/wanted_only_here-1.0-py3-none-any.whl"}
    for step, name in cases.items():
        path = kit.folder / name
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
        done = kit.run(step)
        assert done.returncode == ExitCode.INFRASTRUCTURE
        assert f"{name}: FAILED" in done.stderr
        assert "is not complete and unchanged\nCopy the kit again." in done.stderr
        path.write_bytes(content)
    texts = {name: (kit.folder / name).read_text() for name in ("run", "SHA256SUMS")}
    (kit.folder / "run").write_text(texts["run"].replace("versions='", "versions='9."))
    kept = [it for it in texts["SHA256SUMS"].splitlines(keepends=True) if "  run" not in it]
    (kit.folder / "SHA256SUMS").write_text("".join(kept))
    done = kit.run()
    for name, text in texts.items():
        (kit.folder / name).write_text(text)
    assert done.returncode == ExitCode.INFRASTRUCTURE
    assert "found no Python of version 9." in done.stderr
    own = f"python3 is Python {sys.version_info.major}.{sys.version_info.minor}"
    assert own in done.stderr
    assert not (kit.folder / "report").exists()


@pytest.mark.docker
def test_a_user_of_a_container_without_a_network(
    kit: Kit, fresh_image: str, tmp_path: Path
) -> None:
    """A minimal Debian: no git, no compiler, no ensurepip, and a torch of Debian's Python."""
    [torch] = (kit.machine / "vendor's wheels").glob("torch-*.whl")
    with zipfile.ZipFile(torch) as wheel:
        wheel.extractall(tmp_path / "packages")
    places = {kit.folder: "/media/kit", tmp_path / "packages": "/usr/lib/python3/dist-packages"}
    mounts = [f"--mount=type=bind,source={a},target={b},readonly" for a, b in places.items()]
    options = (f"--label={'='.join(LABEL)}", "--network=none", f"--user={USER_ID}", *mounts)
    machine = docker("run", "--detach", "--init", *options, fresh_image, "sleep", "infinity")
    machine = machine.strip()

    def typed(line: str) -> tuple[int, str]:
        command = ["docker", "exec", f"--workdir=/home/{USER}", machine, "sh", "-c", line]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    try:
        code, printed = typed("/media/kit/run env")
        assert code == ExitCode.INFRASTRUCTURE
        assert f"run: /media/kit: {USER} cannot write there\nCopy the kit to a disk" in printed
        code, printed = typed("cp -r /media/kit it && PYTHON=/no/python sh it/run doctor full")
        assert code == ExitCode.PASSED, printed
        assert "needs no git" in printed
        assert "2 passed" in printed
        assert typed("mv it/report-*.tar.gz report.tar.gz")[0] == 0
        docker("cp", f"{machine}:/home/{USER}/report.tar.gz", str(tmp_path))
    finally:
        docker("rm", "--force", "--volumes", machine)
    imported = ci("import", tmp_path / "report.tar.gz", "--results", tmp_path / "there")
    assert imported.returncode == ExitCode.PASSED, imported.stderr
    assert "2 passed" in ci("report", "--results", tmp_path / "there").stdout


def test_the_steps_on_a_machine_without_a_network(kit: Kit, tmp_path: Path) -> None:
    done = kit.run(INFINI_TINY_FAILS="1")
    assert done.returncode == ExitCode.PRODUCT_FAILURE, done.stdout + done.stderr
    outcomes = kit.outcomes()
    codes = {name: it["exit_code"] for name, it in outcomes.items()}
    # The failure of one step stops none after it; a contract holds no failures.
    expected = {"env": 0, "doctor": 0, "smoke": 0, "full": 1, "contract": 2, "bench": 0}
    assert codes == expected, done.stdout
    assert "git init" not in done.stdout  # the sources of a kit are in no repository
    assert outcomes["smoke"]["note"].startswith("1 passed, 1 skipped")
    assert outcomes["contract"]["note"].startswith("a contract cannot expect failures")

    results = kit.folder / "report" / "results"
    run = outcomes["full"]["run_id"]
    full = json.loads((results / run / "results.json").read_text())
    [row] = full["platforms"]
    assert full["commit"]  # although the machine has no repository
    assert row["environment"]["torch"] == OWN
    vendor = kit.machine / "vendor" / "bin" / "python3"
    assert f"torch {OWN} is this machine's own, of {vendor}" in row["notes"]
    bench = json.loads((results / outcomes["bench"]["run_id"] / "results.json").read_text())
    assert [it["name"] for it in bench["platforms"][0]["benchmarks"]] == ["empty"]

    [report] = kit.folder.glob("report-nvidia-*.tar.gz")
    there = tmp_path / "there"
    imported = ci("import", report, "--results", there)
    assert imported.returncode == ExitCode.PASSED, imported.stderr
    reports = [ci("report", run, "--results", it).stdout for it in (results, there)]
    tables = [it.partition("why it did not pass")[0] for it in reports]  # commands name the folder
    assert "1 failed, 1 passed" in tables[0]
    assert tables[0] == tables[1]

    done = kit.run("env", "doctor")
    assert done.returncode == ExitCode.PASSED, done.stdout + done.stderr
    assert set(kit.outcomes()) == set(expected)  # those of the first time are kept
