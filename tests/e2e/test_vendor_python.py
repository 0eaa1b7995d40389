"""A machine whose vendor has installed torch: the host engine's environment sees and keeps it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ci.errors import ExitCode
from ci.util.invocation import REPOSITORY
from tests.built import built_once, make_wheel

OWN, IN_THE_FOLDER = "2.9.0+acme", "2.13.0.1"  # the second is in no index
NEEDS = "pytest\npytest-reportlog\n"
SITE = "platforms:\n  nvidia: {devices: {count: 0}}\n"
CONFIG = """\
project: tiny
platforms:
  cpu: {requirements: needs.txt}
  nvidia: {requirements: needs.txt}
stages:
- name: install
  command: python -m pip install --no-index wants-torch
- name: pytest
  kind: pytest
  command: python -m pytest -q tests
"""
TESTS = """\
import os, sys
import acme_kernels, torch, wants_torch
{more}

def test_torch():
    assert (torch.__version__, torch.__file__.startswith(sys.prefix)) == {expected}

def test_the_environment_is_fresh():
    assert os.environ["VIRTUAL_ENV"] == sys.prefix
    assert wants_torch.__file__.startswith(sys.prefix)
"""


def make_machine(folder: Path) -> None:
    """Make a vendor's Python, an environment without torch, and a folder of wheels.

    The folder has a newer torch. The vendor's is in no index, and its Python has pytest, but no
    pip, and a module by way of a file ``.pth``.
    """
    for name, version in {"torch": OWN, "acme-kernels": "1.0"}.items():
        make_wheel(folder / "vendor's wheels", name, version)
    make_wheel(folder / "wheels", "torch", IN_THE_FOLDER)
    make_wheel(folder / "wheels", "wants-torch", "1.0", requires="torch>=2")
    make_wheel(folder / "wheels", "wants-newest-torch", "1.0", requires=f"torch=={IN_THE_FOLDER}")
    virtualenv = [sys.executable, "-m", "virtualenv", "--quiet"]
    subprocess.run([*virtualenv, folder / "vendor"], check=True)
    subprocess.run([*virtualenv, "--without-pip", folder / "plain"], check=True)
    pip = [str(folder / "vendor" / "bin" / "python"), "-m", "pip", "--quiet"]
    wheels = sorted((folder / "vendor's wheels").iterdir())
    subprocess.run([*pip, "install", *wheels, *NEEDS.split()], check=True)
    subprocess.run([*pip, "uninstall", "--yes", "pip"], check=True)  # some have none
    [packages] = (folder / "vendor" / "lib").glob("python*/site-packages")
    (folder / "sdk").mkdir()
    (folder / "sdk" / "acme_sdk.py").touch()
    (packages / "acme.pth").write_text(f"{folder / 'sdk'}\n")


@dataclass(frozen=True)
class Machine:
    """A machine with a vendor's Python, and a project on it."""

    folder: Path
    project: Path

    @property
    def vendor(self) -> Path:
        return self.folder / "vendor" / "bin" / "python3"

    def run(self, *words: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the program where the vendor's Python is not the first on PATH."""
        folders = (self.folder / "plain" / "bin", self.vendor.parent, "/usr/bin", "/bin")
        variables = {
            "PATH": os.pathsep.join(map(str, folders)),
            "PIP_FIND_LINKS": str(self.folder / "wheels"),
            "TMPDIR": str(self.project.parent),  # for a work folder that is kept
            "INFINI_CI_SITE": str(self.project / "site.yaml"),
        }
        return subprocess.run(
            [sys.executable, "-m", "ci", *words, "--results", str(self.project / "results")],
            cwd=REPOSITORY,
            env={**os.environ, **variables, **environ},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def row(self, platform: str, *words: str, **environ: str) -> dict[str, Any]:
        """Run a platform on this machine and return its row."""
        source = ("--source", str(self.project))
        done = self.run("run", platform, "--engine", "host", *source, *words, **environ)
        document = json.loads((self.project / "results/latest/results.json").read_text())
        [row] = document["platforms"]
        return {**row, "exit_code": done.returncode, "printed": done.stdout + done.stderr}


@pytest.fixture
def machine(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    project = tmp_path / "project"
    (project / "tests").mkdir(parents=True)
    (project / "ci.yaml").write_text(CONFIG)
    (project / "site.yaml").write_text(SITE)
    (project / "needs.txt").write_text(NEEDS)
    (project / "tests" / "test_it.py").write_text(
        TESTS.format(expected=(OWN, False), more="import acme_sdk")
    )
    return Machine(folder=built_once(tmp_path_factory, "vendor", make_machine), project=project)


def test_the_vendors_torch_is_found_and_kept(machine: Machine) -> None:
    row = machine.row("nvidia")
    assert row["exit_code"] == ExitCode.PASSED, row["printed"]
    assert row["environment"]["torch"] == OWN
    version = ".".join(map(str, sys.version_info[:3]))
    assert f"torch {OWN} is this machine's own, of {machine.vendor}" in row["notes"]
    [tools] = [note for note in row["notes"] if note.startswith(f"Python {version}, torch {OWN}")]
    assert (row["environment"]["compiler"] or "") in tools


@pytest.fixture
def other_machine(machine: Machine, tmp_path: Path) -> Machine:
    """A copy of the machine, to change what is installed."""
    folder = tmp_path / "machine"
    shutil.copytree(machine.folder, folder, symlinks=True)
    return replace(machine, folder=folder)


def packages_of(machine: Machine, name: str) -> Path:
    [packages] = (machine.folder / name / "lib").glob("python*/site-packages")
    return packages


def found_by_doctor(machine: Machine) -> tuple[int, str]:
    """Return the exit code of ``doctor``, and its findings as one line."""
    config = ("--config", str(machine.project / "ci.yaml"))
    done = machine.run("doctor", "nvidia", "--engine", "host", *config, COLUMNS="1000")
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_torch_that_cannot_be_imported_is_no_failure_of_the_product(
    other_machine: Machine,
) -> None:
    [torch] = packages_of(other_machine, "vendor").glob("torch*.py")
    torch.write_text("import ctypes\nctypes.CDLL('libacme.so.1')\n")
    row = other_machine.row("nvidia")
    assert row["exit_code"] == ExitCode.INFRASTRUCTURE
    [evidence] = row["verdict"]["evidence"]
    found = (
        f"torch of nvidia: that of {other_machine.vendor} cannot be imported: OSError: libacme.so"
    )
    assert found in evidence["text"]
    assert "name another Python: --python PATH" in evidence["text"]
    code, shown = found_by_doctor(other_machine)
    assert (code, found.partition(": ")[2] in shown) == (ExitCode.INFRASTRUCTURE, True), shown


def test_what_an_uninstallation_left_is_no_torch(other_machine: Machine) -> None:
    left = packages_of(other_machine, "plain") / "torch" / "lib"  # its Python is the first on PATH
    left.mkdir(parents=True)
    row = other_machine.row("nvidia")
    assert row["exit_code"] == ExitCode.PASSED, row["printed"]
    assert f"torch {OWN} is this machine's own, of {other_machine.vendor}" in row["notes"]


def test_a_torch_that_prints_something_when_imported(other_machine: Machine) -> None:
    [torch] = packages_of(other_machine, "vendor").glob("torch*.py")
    torch.write_text(f"print('Welcome to ACME')\n{torch.read_text()}")
    _, shown = found_by_doctor(other_machine)
    assert f"torch {OWN} of {other_machine.vendor}" in shown


def test_a_named_python_is_used_on_any_platform(machine: Machine) -> None:
    # By default an environment of the platform without devices is bare.
    row = machine.row("cpu")
    assert row["exit_code"] == ExitCode.PRODUCT_FAILURE
    assert row["environment"]["torch"] == IN_THE_FOLDER
    row = machine.row("cpu", "--python", str(machine.vendor))
    assert row["exit_code"] == ExitCode.PASSED, row["printed"]
    assert row["environment"]["torch"] == OWN


@pytest.mark.complete  # tests/ci/engines/test_prerequisites.py has such requirements
def test_requirements_that_bring_torch_get_a_bare_environment(machine: Machine) -> None:
    needs = machine.project / "needs.txt"
    needs.write_text(needs.read_text() + f"torch=={IN_THE_FOLDER}\nacme-kernels\n")
    make_wheel(machine.folder / "wheels", "acme-kernels", "2.0")
    test = machine.project / "tests" / "test_it.py"
    test.write_text(TESTS.format(expected=(IN_THE_FOLDER, True), more=""))
    row = machine.row("nvidia")
    assert row["exit_code"] == ExitCode.PASSED, row["printed"]
    assert not [note for note in row["notes"] if "this machine's own" in note]


def test_requirements_that_exclude_the_vendors_torch(machine: Machine) -> None:
    (machine.project / "needs.txt").write_text("wants-newest-torch\n")
    row = machine.row("nvidia")
    assert row["exit_code"] == ExitCode.INFRASTRUCTURE
    [evidence] = row["verdict"]["evidence"]
    assert f"The user requested (constraint) torch=={OWN}" in evidence["text"]
    assert f"versions that are compatible with the packages of {machine.vendor}" in row["printed"]


def test_a_stage_that_shadows_torch_is_noticed_and_its_shell_keeps_it(machine: Machine) -> None:
    config = machine.project / "ci.yaml"
    other = f"env PIP_CONSTRAINT= python -m pip install --no-index torch=={IN_THE_FOLDER}"
    config.write_text(config.read_text().replace("python -m pip install --no-index", other))
    row = machine.row("nvidia", "--keep")
    assert row["exit_code"] == ExitCode.PRODUCT_FAILURE
    assert f"the stages replaced or shadowed torch=={OWN}" in row["notes"]
    run = (machine.project / "results" / "latest").resolve().name
    show = 'cat "${PIP_CONSTRAINT#file://}"; exit 5'
    shell = machine.run("shell", run, "nvidia", stdin=show)
    assert f"\ntorch=={OWN}\n" in shell.stdout, shell.stderr


def test_a_dry_run_names_the_same_python(machine: Machine) -> None:
    words = ("run", "nvidia", "--engine", "host", "--dry-run", "--source", str(machine.project))
    shown = machine.run(*words, "--format", "json")
    assert shown.returncode == 0, shown.stderr
    [nvidia] = json.loads(shown.stdout)["platforms"]
    assert (nvidia["python"], nvidia["sees_packages"]) == (str(machine.vendor), True)


def test_a_python_that_cannot_be_used(machine: Machine) -> None:
    python = machine.project / "python"
    python.touch()
    words = ("run", "cpu", "--engine", "host", "--source", str(machine.project))
    done = machine.run(*words, "--python", str(python))
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.startswith(f"error: --python: {python} is not a program\n")
    assert not (machine.project / "results").exists()
    # The site's is found when its platform begins, and stops no other platform.
    row = machine.row("cpu", INFINI_CI_PYTHON_CPU=str(python))
    assert row["exit_code"] == ExitCode.INFRASTRUCTURE
    assert f"Python: {python} is not a program" in row["verdict"]["evidence"][0]["text"]


def test_a_container_has_its_own_python(machine: Machine) -> None:
    words = ("run", "cpu", "--source", str(machine.project), "--python", str(machine.vendor))
    for engine in ([], ["--engine", "docker"]):
        done = machine.run(*words, *engine)
        assert done.returncode == ExitCode.USAGE
        assert "Add it: --engine host" in done.stderr
