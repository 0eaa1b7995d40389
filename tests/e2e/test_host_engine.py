"""What only the host engine has: a virtual environment beside the user's own."""

from __future__ import annotations

import ensurepip
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from ci.engines.host.engine import HostEngine
from ci.engines.host.workfolder import WorkFolder
from ci.errors import InfrastructureError
from tests.e2e.benches import Bench, engine_or_skip
from tests.e2e.plans import python_stage, stage


def test_stages_see_the_fresh_environment(
    host_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")  # a suite that asserts nothing would pass
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # each process would compile all of torch's
    program = """
import json, os, sys
names = ("GREETING", "PYTHONPATH", "VIRTUAL_ENV")
flags = (__debug__, sys.dont_write_bytecode)
print(json.dumps([sys.prefix, os.getcwd(), flags, *map(os.environ.get, names)]))
"""
    plan = host_bench.plan(python_stage("look", program))
    facts = host_bench.run(plan)
    prefix, folder, flags, greeting, python_path, venv = json.loads(
        (plan.results / "look.log").read_text()
    )
    assert prefix == venv
    assert not folder.startswith(str(plan.source))
    assert flags == [True, False]
    assert (greeting, python_path) == ("good morning", None)
    assert facts.image is not None
    assert (facts.image.built, facts.image.digest) == (True, None)
    assert sorted(path.name for path in plan.source.iterdir()) == ["pyproject.toml", "src", "tests"]
    assert not (plan.results / "host.lock").exists()


def test_the_environment_has_its_own_pip_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "virtualenv" / "virtualenv.ini"
    settings.parent.mkdir()
    settings.write_text("[virtualenv]\nsystem-site-packages = true\ndownload = true\n")
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):  # nothing is cached yet
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    bench = Bench(engine_or_skip("host"), tmp_path)
    program = """
import json, os, subprocess, sys
pip = subprocess.run(["pip", "--version"], check=True, capture_output=True, text=True).stdout
print(json.dumps([sys.prefix, sys.version, sys.path, pip.split()]))
"""
    plan = bench.plan(python_stage("look", program))
    facts = bench.run(plan)
    assert facts.exit_code == 0, (plan.results / "image.log").read_text()
    prefix, version, path, pip = json.loads((plan.results / "look.log").read_text())
    assert version == sys.version
    [packages] = (folder for folder in path if folder.endswith("-packages"))
    assert pip[2:4] == ["from", f"{packages}/pip"]
    assert packages.startswith(prefix)
    assert Version(pip[1]) >= Version(ensurepip.version())


def test_stages_get_only_listed_variables_of_the_shell(
    host_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = {"CXXFLAGS": "-O1", "LC_TIME": "C", "ASCEND_HOME_PATH": "/opt", "OMP_NUM_THREADS": "1"}
    asked = {"DEPLOY_TOKEN": "by its name", "LAB_NAME": "by its beginning"}
    withheld = {
        "AWS_SECRET_ACCESS_KEY": "SECRET",
        "PIP_PASSWORD": "SECRET",
        "LAB_OTHER": "withheld",
        "AMBIENT": "withheld",
        "INFINI_CI_DB": "postgresql+psycopg://ci:SECRET@db/ci",
    }
    for name, value in {**passed, **asked, **withheld}.items():
        monkeypatch.setenv(name, value)
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    plan = host_bench.plan(python_stage("look", program))
    patterns = ("DEPLOY_TOKEN", "LAB_N*")
    plan = replace(plan, host=replace(plan.host, pass_environment=patterns))
    host_bench.run(plan)
    text = (plan.results / "look.log").read_text()
    assert "SECRET" not in text
    seen = json.loads(text)
    assert {**passed, **asked}.items() <= seen.items()
    assert withheld.keys().isdisjoint(seen)


def test_only_settings_of_the_network_reach_pip(
    host_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = host_bench.folder / "pip.conf"
    file.write_text("[global]\nuser = true\nretries = 9\n[install]\nno-deps = true\n")
    others = ("TARGET", "PREFIX", "ROOT", "USER", "DRY_RUN", "REQUIRE_VIRTUALENV", "ONLY_BINARY")
    python = ("PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONSAFEPATH", "PYTHONWARNINGS")
    for name in (*(f"PIP_{it}" for it in others), *python, "VIRTUALENV_CLEAR", "UV_TARGET"):
        monkeypatch.setenv(name, str(host_bench.folder / "elsewhere"))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_TIMEOUT", "7")
    program = """
import importlib, json, os, subprocess, sys
pip = [sys.executable, "-m", "pip"]
listed = subprocess.run([*pip, "config", "list"], check=True, capture_output=True, text=True)
install = [*pip, "install", "--quiet", "--no-index", "--no-build-isolation", "."]
subprocess.run(install, check=True)
importlib.invalidate_caches()
import tiny
names = [name for name in os.environ if name.startswith(("PYTHON", "VIRTUALENV_", "UV_"))]
print(json.dumps([tiny.__file__.startswith(sys.prefix), names, listed.stdout]))
"""
    plan = host_bench.plan(python_stage("look", program))
    assert host_bench.run(plan).exit_code == 0, (plan.results / "look.log").read_text()
    is_inside, names, listed = json.loads((plan.results / "look.log").read_text())
    assert is_inside
    assert {*python, "VIRTUALENV_CLEAR", "UV_TARGET"}.isdisjoint(names)
    options = {line.partition("=")[0].rpartition(".")[2] for line in listed.splitlines()}
    assert {"retries", "timeout"} <= options
    assert options.isdisjoint({it.lower().replace("_", "-") for it in (*others, "NO_DEPS")})


# Prints the environment of this process, and those of its ancestors up to the agent.
ENVIRONMENTS = """
import os
from pathlib import Path

print(os.environ)
process, agents = os.getppid(), 0
while b"agent.pyz" in Path(f"/proc/{process}/cmdline").read_bytes():
    agents += 1
    print(Path(f"/proc/{process}/environ").read_bytes())
    status = Path(f"/proc/{process}/status").read_text()
    process = int(status.split("PPid:")[1].split()[0])
print(f"{agents} ancestors")
"""

# A package that cannot be built: its backend runs while the environment is made.
BACKEND = """
import os
from pathlib import Path

def build_wheel(*arguments):
    Path({!r}).write_text(str(os.environ))
    raise SystemExit("enough")
"""


def test_the_store_is_hidden_from_what_runs(
    host_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFINI_CI_DB", "postgresql+psycopg://ci:SECRET@db/ci")
    monkeypatch.setenv("CXXFLAGS", "-O1")
    plan = host_bench.plan(python_stage("look", ENVIRONMENTS))
    assert host_bench.run(plan).exit_code == 0
    seen = (plan.results / "look.log").read_text()
    assert seen.endswith("\n2 ancestors\n")  # the supervisor of the stage, and the agent
    assert seen.count("CXXFLAGS") == 3
    assert "INFINI_CI_DB" not in seen
    assert "SECRET" not in seen


def test_the_store_is_hidden_from_what_is_installed(
    host_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFINI_CI_DB", "postgresql+psycopg://ci:SECRET@db/ci")
    package, seen = host_bench.folder / "package", host_bench.folder / "seen"
    package.mkdir()
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (package / "backend.py").write_text(BACKEND.format(str(seen)))
    plan = host_bench.plan(stage("build", "true"), requirements=f"{package}\n")
    with pytest.raises(InfrastructureError, match="enough"):
        host_bench.engine.prepare(plan, host_bench.observer)
    assert "VIRTUAL_ENV" in seen.read_text()
    assert "INFINI_CI_DB" not in seen.read_text()


def test_notes_of_the_choice_reach_the_reader(tmp_path: Path) -> None:
    bench = Bench(HostEngine(notes=["DOCKER_HOST was not used"]), tmp_path)
    assert bench.run(bench.plan(stage("build", "true"))).notes == ("DOCKER_HOST was not used",)


def test_requirements_that_cannot_be_met(host_bench: Bench) -> None:
    plan = host_bench.plan(stage("build", "true"), requirements="--no-index\nno-such-package\n")
    with pytest.raises(InfrastructureError, match=r"cannot be made\n(.*\n)*.*no-such-package"):
        host_bench.engine.prepare(plan, host_bench.observer)
    assert "no-such-package" in (plan.results / "image.log").read_text()


def test_disk_that_cannot_be_written_to(host_bench: Bench) -> None:
    plan = host_bench.plan(stage("build", "true"))
    plan.results.write_text("a file where a folder must be")
    with pytest.raises(InfrastructureError, match=r"the run on this machine failed: .*results"):
        host_bench.engine.prepare(plan, host_bench.observer)


def test_sources_that_cannot_be_read(host_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = host_bench.plan(stage("build", "true"))
    image = host_bench.engine.prepare(plan, host_bench.observer)
    # As if the disk for temporary files had gone meanwhile.
    monkeypatch.setattr("tempfile.tempdir", str(host_bench.folder / "gone"))
    with pytest.raises(InfrastructureError, match=r"the run on this machine failed: .*gone"):
        host_bench.engine.execute(plan, image, host_bench.observer)


def test_run_that_never_began_is_not_adopted(host_bench: Bench) -> None:
    plan = host_bench.plan(stage("build", "true"))
    image = host_bench.engine.prepare(plan, host_bench.observer)  # and its caller dies here
    assert host_bench.engine.resume(plan, host_bench.observer) is None
    with pytest.raises(
        InfrastructureError, match=r"the virtual environment of run .* no longer exists"
    ):
        host_bench.engine.execute(plan, image, host_bench.observer)


def test_run_whose_work_folder_is_gone_is_not_adopted(host_bench: Bench) -> None:
    plan = host_bench.plan(stage("build", "true"))
    folder = WorkFolder.create(plan)
    # As if a cleaner of temporary files had removed the folder of an agent that ended.
    lock = {"path": str(folder.path), "agent": 1 << 30}
    folder.state.write_text(json.dumps(lock))
    folder.path.rmdir()
    assert host_bench.engine.resume(plan, host_bench.observer) is None
    assert not folder.state.exists()
