"""docs/drive-another-project.md: its configurations are valid, and run projects of other people."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ci import cli
from ci.engines import Engine
from ci.engines.checks import package_manager
from ci.errors import ExitCode
from ci.plan.load import load_config
from tests.built import built_once
from tests.e2e.plans import PROJECT
from tests.forked import run_ci

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "drive-another-project.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("\n## 3. ")[2].partition("\n## ")[0]
GREETING = "\n      GREETING: good morning\n"  # the requirement of the tiny project


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def requirements() -> str:
    [text] = [block for block in blocks("text") if block.startswith("pytest\n")]
    return text


def test_its_configurations_are_valid(tmp_path: Path) -> None:
    configs = []
    for text in blocks("yaml"):
        (tmp_path / "ci.yaml").write_text(text, encoding="utf-8")
        configs.append(load_config(tmp_path / "ci.yaml"))
        assert [stage.name for stage in configs[-1].stages] == ["install", "pytest"]
    _, short, more, packages, by_distribution = configs
    assert "--group=test" in short.stages[0].command
    assert more.platforms["cpu"].requirements in PAGE.split("`")
    assert packages.system_packages == ("less",)
    assert by_distribution.platforms["cpu"].system_packages


def test_its_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [shlex.split(line)[3:] for line in lines if line.startswith("python -m ci ")]
    assert {command[0] for command in commands} == {"init", "run", "bundle", "gc"}
    for command in commands:
        with pytest.raises(SystemExit, match=r"^0$"):
            cli.main([command[0], "--help"])
        shown = capsys.readouterr().out
        assert [word for word in command if word.startswith("--") and word not in shown] == []


def test_a_project_with_its_files(tmp_path: Path) -> None:
    project = tmp_path / "project"
    config = blocks("yaml")[2].replace("\n    environment:\n", "\n    environment:" + GREETING)
    config += "system_packages: [no-such-package]\n"
    files = {**PROJECT, "ci.yaml": config, "requirements-ci.txt": requirements()}
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    words = ("--engine", "host", "--source", project, "--results", tmp_path / "results")
    finished = run_ci("run", "cpu", *words)
    assert finished.returncode == 1, finished.stderr  # one of the tests fails
    results = json.loads((tmp_path / "results" / "latest" / "results.json").read_text())
    [row] = results["platforms"]
    assert (row["label"], row["built"]) == ("CPU (C extension)", True)
    assert (row["pytest"]["passed"], row["pytest"]["failed"]) == (2, 1)
    [note] = [note for note in row["notes"] if "system_packages" in note]
    assert re.search(rf"{package_manager()} install .* no-such-package'?$", note)
    assert not [note for note in row["notes"] if "cache" in note]
    assert sorted(path.name for path in project.iterdir()) == sorted(
        {name.split("/")[0] for name in files}
    )


def test_init_then_run(tmp_path: Path) -> None:
    project = tmp_path / "project"
    more = '[dependency-groups]\ntest = ["iniconfig", "pytest"]\n[tool.pytest]\naddopts = ["-x"]\n'
    tox = (
        "[testenv]\nset_env = GREETING=good morning\ndependency_groups = test\n"
        "commands = pytest -k 'not that_fails' {posargs}\n"
    )
    files = {**PROJECT, "pyproject.toml": PROJECT["pyproject.toml"] + more, "tox.ini": tox}
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    begun = run_ci("init", project)
    assert begun.returncode == 0, begun.stderr
    command = begun.stdout.rpartition(": python -m ci ")[2].split()
    finished = run_ci(*command, "--engine", "host", "--results", tmp_path / "results")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    results = json.loads((tmp_path / "results" / "latest" / "results.json").read_text())
    [row] = results["platforms"]
    assert row["pytest"]["summary"].startswith("2 passed, 1 deselected")


ENGINES = ("host", pytest.param("docker", marks=pytest.mark.docker))


def row_of(engine: str, project: Path) -> dict[str, Any]:
    """Run a project as the page does, and return what both engines must agree on."""
    results = project.parent / f"{project.name}-{engine}"
    words = ("--engine", engine, "--source", project, "--results", results, "--format", "json")
    finished = run_ci("run", "cpu", *words)
    assert finished.stdout, finished.stderr
    [row] = json.loads(finished.stdout)["platforms"]
    print(row["notes"], row["failures"])
    names = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed", "deselected")
    return {
        "exit_code": finished.returncode,
        "verdict": (row["verdict"]["product"], row["verdict"]["harness"]),
        "counts": {name: row["pytest"][name] for name in names},
        "label": row["label"],
    }


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("step", [2, pytest.param(4, marks=pytest.mark.complete)])
def test_the_example_of_the_page(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    ready_engine: Callable[[str], Engine],
    engine: str,
    step: int,
) -> None:
    ready_engine(engine).close()

    def download(folder: Path) -> None:
        (folder / "checkout").mkdir()
        [commands] = [block for block in blocks("sh") if "pip download" in block]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        variables = {**os.environ, "PATH": path}
        command = ["sh", "-e", "-c", commands]
        subprocess.run(command, cwd=folder / "checkout", env=variables, check=True)

    [archive] = built_once(tmp_path_factory, "example", download).glob("*.tar.gz")
    project = unpacked(archive, tmp_path)
    (project / "ci.yaml").write_text(blocks("yaml")[2 if step == 4 else 0])
    (project / "requirements-ci.txt").write_text(requirements())
    row = row_of(engine, project)
    assert (row["exit_code"], row["verdict"]) == (ExitCode.PASSED, ("passed", "clean"))
    assert row["label"] == ("CPU (C extension)" if step == 4 else "CPU")
    shown = {name: int(count) for count, name in re.findall(r"(\d+) (passed|skipped)", TABLE)}
    assert {name: row["counts"][name] for name in shown} == shown


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


# Projects of other people, with quick suites in their archives, and what each is a case of.
POOL = {
    "ujson==5.11.0": "C++ extension, src, setuptools-scm",
    "zope.interface==8.1": "C extension, a namespace, tests inside of the package",
    "simplejson==3.20.2": "C extension, no pyproject.toml, package in the root",
    "toolz==1.0.0": "pure, no pyproject.toml, package in the root, versioneer",
    "tomlkit==0.13.3": "pure, poetry-core, package in the root",
    "pathspec==0.12.1": "pure, flit, package in the root",
    "platformdirs==4.5.0": "pure, hatchling, src, a version of hatch-vcs",
    "pluggy==1.6.0": "pure, setuptools-scm, src, of pytest itself",
    "pytest-timeout==2.4.0": "a plugin of pytest, one module",
}
# What the suites import; and the backends with which pip reads the archives that it downloads.
NEEDED = "pytest\npytest-reportlog\nappdirs\npexpect\npretend\npytest-mock\npyyaml\nzope.testing\n"
BACKENDS = "setuptools setuptools-scm wheel flit-core hatchling hatch-vcs poetry-core"
POOLED = "project: other\nplatforms:\n  cpu: {requirements: needed.txt}\n"


def download_pool(folder: Path) -> None:
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "virtualenv", "--quiet", venv], check=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--quiet"]
    # Otherwise each archive gets an environment of its own, in 4 CPU-seconds.
    subprocess.run([*pip, "install", *BACKENDS.split()], check=True)
    options = ("--no-deps", "--no-build-isolation", "--no-binary", ":all:")
    subprocess.run([*pip, "download", *options, "--dest", folder, *POOL], check=True)


@pytest.mark.docker
@pytest.mark.complete
@pytest.mark.parametrize("requirement", POOL, ids=lambda it: it.partition("=")[0])
def test_both_engines_give_one_row(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    ready_engine: Callable[[str], Engine],
    requirement: str,
) -> None:
    ready_engine("docker").close()
    name, _, version = requirement.partition("==")
    spelled = re.sub(r"[-.]", "_", name)
    archive = f"{spelled}-{version}.tar.gz"
    project = unpacked(built_once(tmp_path_factory, "pool", download_pool) / archive, tmp_path)
    (project / "ci.yaml").write_text(POOLED)
    (project / "needed.txt").write_text(NEEDED)
    host, docker = (row_of(engine, project) for engine in ("host", "docker"))
    assert host == docker
    assert host["verdict"] == ("passed", "clean")
    assert host["counts"]["passed"]
