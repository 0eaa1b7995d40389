"""The distribution `infini-ci`: its files, and the installed program in the folder of a project."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest

from ci import __version__
from ci.errors import ExitCode
from ci.util.invocation import REPOSITORY
from tests.built import build_distribution, make_environment, run, wheel_of
from tests.e2e.benches import ENGINES, engine_or_skip
from tests.e2e.plans import PROJECT

OF_THE_DISTRIBUTION = {"README.md", "hatch_build.py", "pyproject.toml"}
TESTS = "import tiny\n\ndef test_answer():\n    assert tiny.ANSWER == 42\n"


def contents(wheel: Path) -> dict[str, tuple[bytes, bool]]:
    """The files of the package, each with whether it can be executed."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            it.filename: (archive.read(it), bool(it.external_attr >> 16 & 0o100))
            for it in archive.infolist()
            if ".dist-info/" not in it.filename
        }


def requirements(folder: Path) -> list[str]:
    [found] = distributions(name="infini-ci", path=[str(wheel_of(folder))])
    return list(found.requires or ())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_distribution(tmp_path_factory, "ci")


@pytest.fixture(scope="module")
def program(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment that has the wheel, and the packages of this one."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    return make_environment(folder, wheel_of(built)).with_name("infini-ci")


@pytest.fixture
def project(program: Path, tmp_path: Path) -> Path:
    """A project for which the installed program has written a configuration."""
    for name, text in {**PROJECT, "tests/test_tiny.py": TESTS}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = run(program, "init", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "Review it, then run: infini-ci run cpu"
    return tmp_path


def test_it_has_the_program_the_recipes_and_nothing_else(built: Path) -> None:
    listed = run("git", "ls-files", "ci", "docker", folder=REPOSITORY).stdout.splitlines()
    if not listed:
        pytest.skip("not a clone")
    usual = {name for name in listed if name.removeprefix("ci/") not in OF_THE_DISTRIBUTION}
    files = {re.sub("^docker/", "ci/recipes/", name): REPOSITORY / name for name in usual}
    files["ci/LICENSE"] = REPOSITORY / "LICENSE"
    assert contents(wheel_of(built)) == {
        name: (path.read_bytes(), os.access(path, os.X_OK)) for name, path in files.items()
    }


def test_a_wheel_of_the_source_distribution_is_the_same(built: Path, tmp_path: Path) -> None:
    [source] = built.glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    done = run(*pip, "--no-index", source, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert contents(wheel_of(tmp_path)) == contents(wheel_of(built))
    metadata = [
        zipfile.ZipFile(wheel_of(folder)).read(f"infini_ci-{__version__}.dist-info/METADATA")
        for folder in (built, tmp_path)
    ]
    assert b"Requires-Dist: docker~=" in metadata[0]
    assert metadata[0].splitlines() == [
        it for it in metadata[1].splitlines() if b"-File:" not in it
    ]


def test_it_says_its_version(program: Path, tmp_path: Path) -> None:
    done = run(program, "--version", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"infini-ci {__version__}\n")


@pytest.mark.parametrize("engine", ENGINES)
def test_it_validates_the_project_of_the_current_folder(
    engine: str, program: Path, project: Path
) -> None:
    engine_or_skip(engine).close()
    done = run(program, "run", "cpu", "--engine", engine, folder=project)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = run(program, "report", folder=project)
    assert (shown.returncode, "passed in" in shown.stdout) == (0, True)


def test_its_messages_name_it(program: Path, tmp_path: Path) -> None:
    report = run(program, "report", folder=tmp_path)
    assert (report.returncode, report.stderr.splitlines()[-1]) == (
        ExitCode.USAGE,
        "Run a platform first: infini-ci run cpu",
    )
    unwritten = run(program, "run", "cpu", folder=tmp_path)
    assert unwritten.returncode == ExitCode.USAGE
    assert f"or write one: infini-ci init {tmp_path}\n" in unwritten.stderr


def test_its_offline_base_is_made_by_its_own_recipe(program: Path, tmp_path: Path) -> None:
    code = "from ci.model.platforms import OFFLINE_BASE_COMMAND as made; print(*made)"
    done = run(program.with_name("python"), "-c", code, folder=tmp_path)
    [recipe] = done.stdout.split()
    assert os.access(recipe, os.X_OK)
    assert Path(recipe).read_bytes() == (REPOSITORY / "docker/make-base-image").read_bytes()


@pytest.mark.complete
def test_it_packs_itself_into_a_bundle(program: Path, project: Path, tmp_path: Path) -> None:
    engine_or_skip("docker").close()
    (elsewhere := tmp_path / "elsewhere").mkdir()
    bundle = elsewhere / "tiny.tar"
    done = run(program, "bundle", "cpu", "--output", bundle, folder=project)
    assert done.returncode == 0, done.stderr
    assert run("tar", "-xf", bundle, "bundle/program", folder=elsewhere).returncode == 0
    bundled = ("env", "PYTHONPATH=bundle/program", sys.executable, "-m", "ci")
    done = run(*bundled, "run", "--bundle", bundle, folder=elsewhere)
    assert done.returncode == 0, done.stdout + done.stderr
