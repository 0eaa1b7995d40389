"""Plans of runs that install a wheel or a source distribution from elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.tags import Tag

from ci.errors import UsageError
from ci.model.plan import GivenDistribution
from ci.plan.config import Config
from ci.plan.given import given_to, read_given, refuse_machine, refuse_misfit
from tests.ci.made_plans import INPUTS, plan

WHEEL = "tiny-1-py3-none-any.whl"
SDIST = "tiny-1.tar.gz"
PROJECT: Mapping[str, object] = {"project": "tiny", "platforms": {"cpu": {}}}
TESTS: Mapping[str, object] = {"name": "pytest", "command": "pytest", "kind": "pytest"}


def file(name: str) -> GivenDistribution:
    return GivenDistribution(path=Path("/elsewhere", name), sha256="0" * 64, size_bytes=1)


def commands(config: Mapping[str, object], given: str | None = None) -> dict[str, str]:
    """The commands of the stages before the tests, by name."""
    inputs = replace(INPUTS, given=file(given) if given else None)
    stages = plan({**PROJECT, **config}, inputs).stages
    assert stages[-1].name == "pytest"
    return {it.name: " ".join(it.command) for it in stages[:-1]}


OWN = {
    "distributions": "dist",
    "stages": [
        {"name": "generate", "command": "python -m generate"},
        {"name": "lint", "command": "ruff .", "column": "none"},
        {"name": "wheel", "command": "python -m pip wheel . -w dist --no-build-isolation"},
        {"name": "install", "command": "python -m pip install {wheel}[dev]"},
        TESTS,
    ],
}
OLD = {
    "stages": [
        {"name": "generate", "command": "python -m generate"},
        {"name": "install", "command": "python -m pip install .[dev] --no-build-isolation -v"},
        {"name": "simulated", "command": "pip install ./device", "column": "none"},
        TESTS,
    ],
}
INSTALL = {"install": "python -m pip install {wheel}[dev]"}
LINT = {"lint": "ruff ."}


@pytest.mark.parametrize(
    ("config", "given", "expected"),
    [
        pytest.param(OWN, WHEEL, {**LINT, **INSTALL}, id="wheel"),
        pytest.param(
            OWN,
            SDIST,
            {
                **LINT,
                "wheel": "python -m pip wheel {sdist} -w dist --no-build-isolation",
                **INSTALL,
            },
            id="source distribution",
        ),
        pytest.param(
            OLD,
            WHEEL,
            {
                "install": f"{INSTALL['install']} --no-build-isolation -v",
                "simulated": "pip install ./device",
            },
            id="a stage that builds and installs",
        ),
        pytest.param(
            {"install": ".[dev] --no-build-isolation"},
            SDIST,
            {
                "wheel": "python -m pip wheel {sdist} --no-deps --wheel-dir=dist"
                " --no-build-isolation",
                "install": f"{INSTALL['install']} --no-build-isolation",
            },
            id="short form",
        ),
    ],
)
def test_stages_that_build_are_replaced(
    config: Mapping[str, object], given: str, expected: Mapping[str, str]
) -> None:
    assert commands(config, given) == expected


@pytest.mark.parametrize("command", ["make install", "pip install -e .", "pip install ./other"])
def test_a_project_whose_installation_is_unknown(command: str) -> None:
    config = {"stages": [{"name": "install", "command": command}, TESTS]}
    with pytest.raises(UsageError, match=r"--wheel: got no stage that installs the project"):
        commands(config, WHEEL)
    with pytest.raises(UsageError, match=r"--sdist: got no stage"):
        commands(config, SDIST)


# The short form


def test_the_default_stages_are_unchanged_without_distributions() -> None:
    assert commands({}) == {"install": "python -m pip install ."}


def test_the_default_stages_build_a_wheel_and_install_it() -> None:
    config = {
        "install": ".[test,more] -r requirements.txt --no-build-isolation -Ca=b",
        "groups": ["dev"],
        "distributions": "out/a wheel",
    }
    built = "--no-deps --wheel-dir=out/a wheel --no-build-isolation -Ca=b"
    assert commands(config) == {
        "wheel": f"python -m pip wheel . {built}",
        "install": "python -m pip install {wheel}[test,more] -r requirements.txt"
        " --no-build-isolation -Ca=b --group=dev",
    }


@pytest.mark.parametrize("install", ["-e .", "numpy", ". .[test]", "./part"])
def test_an_installation_without_a_wheel(install: str) -> None:
    config = {**PROJECT, "distributions": "dist", "install": install}
    with pytest.raises(ValueError, match=r"of which 'distributions' has the wheel"):
        Config.model_validate(config, strict=False)


def test_a_wheel_in_a_command_needs_its_folder() -> None:
    config = {**PROJECT, "stages": OWN["stages"]}
    with pytest.raises(ValueError, match=r"'distributions', the folder of the wheel"):
        Config.model_validate(config, strict=False)


def test_an_artifact_cannot_have_the_name_of_the_folder() -> None:
    config = {**PROJECT, "distributions": "out", "artifacts": {"dist": "out"}}
    with pytest.raises(ValueError, match=r"'distributions' are copied to it"):
        Config.model_validate(config, strict=False)


# The files


def write(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).write_text(name)
    return [str(folder / name) for name in names]


def test_a_file_is_read_with_its_hash(tmp_path: Path) -> None:
    [given] = read_given(write(tmp_path, WHEEL), None)
    found = given_to("cpu", [given])
    assert found is not None
    assert found.sha256 == hashlib.sha256(WHEEL.encode()).hexdigest()
    assert found.size_bytes == len(WHEEL)
    assert given_to("cpu", []) is None


def test_platforms_get_their_own_files(tmp_path: Path) -> None:
    names = (WHEEL, "tiny-1+nvidia-py3-none-any.whl", "tiny_ascend-1-py3-none-any.whl")
    paths = write(tmp_path, *names, "tiny-2-py3-none-any.whl")
    given = read_given([*paths[:3], f"Moore={paths[3]}"], None)
    chosen = {name: given_to(name, given) for name in ("cpu", "nvidia", "ascend", "moore")}
    assert [it and it.path.name for it in chosen.values()] == [*names, "tiny-2-py3-none-any.whl"]


def test_several_files_for_one_platform(tmp_path: Path) -> None:
    given = read_given(write(tmp_path, WHEEL, "tiny-2-py3-none-any.whl"), None)
    with pytest.raises(UsageError, match=r"--wheel: platform cpu: got 2 files for it: ") as raised:
        given_to("cpu", given)
    assert raised.value.remedy == f"Name the platform of each: --wheel cpu={WHEEL}"


def test_no_file_for_a_platform(tmp_path: Path) -> None:
    given = read_given(write(tmp_path, "tiny-1+nvidia-py3-none-any.whl"), None)
    with pytest.raises(UsageError, match=r"platform cpu: got no file for it: tiny-1\+nvidia"):
        given_to("cpu", given)


def test_a_file_that_changed_since_the_run_began(tmp_path: Path) -> None:
    given = read_given(write(tmp_path, WHEEL), None)
    (tmp_path / WHEEL).write_text("another")
    with pytest.raises(UsageError, match=r"has changed since the run began"):
        given_to("cpu", given)
    (tmp_path / WHEEL).unlink()
    with pytest.raises(UsageError, match=r"No such file or directory, expected a file"):
        given_to("cpu", given)


@pytest.mark.parametrize(
    ("wheels", "sdist", "message"),
    [
        ([WHEEL], SDIST, r"--sdist: cannot be combined with --wheel"),
        ([SDIST], None, r"--wheel: got tiny-1\.tar\.gz, expected a file NAME\.whl"),
        ([], WHEEL, r"--sdist: got tiny-1-py3-none-any\.whl, expected a file NAME\.tar\.gz"),
        (["tiny.whl"], None, r"tiny\.whl: the name is malformed"),
        (["a b-1-py3-none-any.whl"], None, r"got a b-1-py3-none-any\.whl, expected"),
        (["/gone/tiny-1-py3-none-any.whl"], None, r"No such file or directory, expected a file"),
        ([], "/gone/tiny-1.tar.gz", r"--sdist: /gone/tiny-1\.tar\.gz: No such file"),
    ],
)
def test_wrong_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wheels: list[str],
    sdist: str | None,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, WHEEL, SDIST)
    with pytest.raises(UsageError, match=message):
        read_given(wheels, sdist)


@pytest.mark.parametrize("tag", ["win_amd64", "macosx_11_0_arm64"])
def test_a_wheel_of_another_system(tmp_path: Path, tag: str) -> None:
    given = read_given(write(tmp_path, f"tiny-1-py3-none-{tag}.whl"), None)
    with pytest.raises(UsageError, match=rf"got the tags py3-none-{tag}, expected some that fit"):
        given_to("cpu", given)


def test_a_wheel_of_another_python() -> None:
    fitting = [Tag("cp311", "cp311", "linux_x86_64"), Tag("py3", "none", "any")]
    refuse_misfit(file(WHEEL), fitting, "Python 3.11")
    refuse_misfit(file(SDIST), fitting, "Python 3.11")
    with pytest.raises(UsageError, match=r"cp39-cp39-linux_x86_64, expected some that fit Python"):
        refuse_misfit(file("tiny-1-cp39-cp39-linux_x86_64.whl"), fitting, "Python 3.11")


@pytest.mark.parametrize("machine", ["x86_64", "amd64", "of a hostile engine", None])
def test_a_wheel_of_the_engines_machine(machine: object) -> None:
    for tag in ("linux_x86_64", "manylinux_2_28_x86_64", "any"):
        refuse_machine(file(f"tiny-1-py3-none-{tag}.whl"), machine)
    refuse_machine(file(SDIST), machine)


@pytest.mark.parametrize("machine", ["aarch64", "arm64"])
def test_a_wheel_of_another_machine(machine: str) -> None:
    name = "tiny-1-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
    with pytest.raises(UsageError, match=r"expected some that fit the machine of the engine"):
        refuse_machine(file(name), machine)
