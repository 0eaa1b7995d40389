"""The parts of a kit that decide: its steps, its exit code, and what its stages install."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ci.errors import ExitCode, UsageError
from ci.upkeep.kit.carry_out import machine_text
from ci.upkeep.kit.document import DOCUMENT, KitDocument, checksums, read_kit
from ci.upkeep.kit.report import read_outcomes, with_outcome, write_outcomes
from ci.upkeep.kit.requirements import stage_requirements
from ci.upkeep.kit.steps import KitStepOutcome, choose_steps, kit_exit_code, steps_of
from ci.upkeep.kit.wheels import check_versions, find_interpreter
from tests.ci import made_plans

KIT = KitDocument(
    version=1,
    project="tiny",
    commit=None,
    dirty=False,
    platform="nvidia",
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    machine="x86_64",
    pythons=("3.11",),
    smoke="few",
    contract=True,
    measurements=("bench",),
)


def outcome(step: str, code: int, seconds: float = 1.0) -> KitStepOutcome:
    return KitStepOutcome(step=step, exit_code=code, seconds=seconds)


def test_a_file_of_the_current_folder_is_not_the_machines_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python looks for modules in the current folder first: it is one without any."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "from $(pwd)"\n')
    python.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert "print('torch', torch.__version__, torch.version.cuda or '')\nfrom /\n" in machine_text(
        "nvidia", str(python)
    )


def test_a_project_has_the_steps_that_its_configuration_names() -> None:
    assert [it.name for it in steps_of(KIT)] == [
        *("env", "doctor", "smoke", "full", "contract", "bench"),
    ]
    plain = KIT.model_copy(update={"smoke": None, "contract": False, "measurements": ()})
    assert [it.name for it in steps_of(plain)] == ["env", "doctor", "full"]
    words = {it.name: it.words for it in steps_of(KIT)}
    assert words["smoke"] == ("run", "nvidia", "--engine", "host", "--select", "few")
    assert words["bench"] == ("run", "nvidia", "--engine", "host", "--until", "bench")


def test_steps_are_carried_out_in_their_order() -> None:
    assert [it.name for it in choose_steps(steps_of(KIT), ["full", "doctor"])] == ["doctor", "full"]
    assert choose_steps(steps_of(KIT), []) == steps_of(KIT)
    wrong = r"run-kit: unknown step 'ful', expected one of env, .*; did you mean 'full'\?"
    with pytest.raises(UsageError, match=wrong):
        choose_steps(steps_of(KIT), ["ful"])


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([0, 0], ExitCode.PASSED),
        ([3, 1, 0], ExitCode.PRODUCT_FAILURE),
        ([0, 3], ExitCode.INFRASTRUCTURE),
        ([2, 0], ExitCode.INFRASTRUCTURE),  # of the doctor: not the product's fault
        ([1, 130], ExitCode.INTERRUPTED),
    ],
)
def test_the_exit_code_of_all_steps(codes: list[int], expected: ExitCode) -> None:
    assert kit_exit_code(outcome(str(n), code) for n, code in enumerate(codes)) is expected


def test_the_newest_outcome_of_each_step_is_kept(tmp_path: Path) -> None:
    assert read_outcomes(tmp_path) == ()
    earlier = (outcome("doctor", 3), outcome("full", 1))
    write_outcomes(tmp_path, with_outcome(earlier, outcome("doctor", 0), steps_of(KIT)))
    assert read_outcomes(tmp_path) == (outcome("doctor", 0), outcome("full", 1))
    (tmp_path / "steps.json").write_text("[{]")
    assert read_outcomes(tmp_path) == ()


def test_another_folder_is_no_kit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"kit\.json: cannot be read: No such file"):
        read_kit(tmp_path)
    document = tmp_path / DOCUMENT
    document.write_text(KIT.model_dump_json())
    assert read_kit(tmp_path) == KIT
    document.write_text(KIT.model_dump_json().replace('"version":1', '"version":2'))
    with pytest.raises(UsageError, match=r"got a kit of version 2, expected version 1"):
        read_kit(tmp_path)
    document.write_text('{"version": 1}')
    with pytest.raises(UsageError, match=r"(?s)expected the document of a kit: .*platform"):
        read_kit(tmp_path)


def test_sums_are_of_every_file(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "empty").touch()
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert checksums(tmp_path) == f"{digest}  a b/empty\n"


def test_versions_of_python() -> None:
    check_versions(["3.11", "3.14"])
    with pytest.raises(UsageError, match=r"--python: got 3\.9, expected one of at least 3\.11"):
        check_versions(["3.9"])
    with pytest.raises(UsageError, match=r"--python: got 3\.1, expected a python3\.1 on this"):
        check_versions(["3.12", "3.1"])


PROJECT = """\
[build-system]
requires = ["hatchling"]
[project]
dependencies = ["torch>=2", "torchvision", "numpy>=1.26"]
optional-dependencies.dev = ["pytest-xdist"]
[dependency-groups]
test = ["hypothesis", {include-group = "more"}]
more = ["toolz", {include-group = "test"}]
"""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -m pip install .", ["torch>=2", "torchvision", "numpy>=1.26", "hatchling"]),
        (
            "pip install .[dev] --no-build-isolation --config-settings=a=b -v",
            ["torch>=2", "torchvision", "numpy>=1.26", "pytest-xdist"],
        ),
        ("pip install --group test", ["hypothesis", "toolz"]),
        ("pip install -e . --no-build-isolation -C a=b 'rich>=14'", [None, "rich>=14"]),
        ("pip install ./elsewhere ../other https://example.org/a.whl", ["setuptools", "wheel"]),
        ("make all", []),
    ],
)
def test_what_stages_install(command: str, expected: list[str | None], tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    config = {"project": "tiny", "platforms": {"cpu": {}}}
    stages = [
        {"name": "build", "command": command},
        {"name": "tests", "command": "python -m pytest", "kind": "pytest"},
    ]
    plan = made_plans.plan({**config, "stages": stages})
    plan = replace(plan, source=tmp_path, host=replace(plan.host, sees_torch=False))
    project = ["torch>=2", "torchvision", "numpy>=1.26"]
    wanted = [it for name in expected for it in (project if name is None else [name])]
    assert sorted(stage_requirements(plan)) == sorted(wanted)
    seen = replace(plan, host=replace(plan.host, sees_torch=True))
    # The vendor's own torch is no requirement; what is built on it still is.
    assert sorted(stage_requirements(seen)) == sorted(it for it in wanted if it != "torch>=2")


def test_a_requirements_file_is_that_of_the_sources(tmp_path: Path) -> None:
    stages = [
        {"name": "build", "command": "pip install -r more/needs.txt"},
        {"name": "tests", "command": "python -m pytest", "kind": "pytest"},
    ]
    plan = made_plans.plan({"project": "tiny", "platforms": {"cpu": {}}, "stages": stages})
    found = stage_requirements(replace(plan, source=tmp_path))
    assert found == ["--requirement", str(tmp_path / "more" / "needs.txt")]


def test_a_shim_that_leads_nowhere_is_no_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert find_interpreter("3.99") is None
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    assert find_interpreter("3.99") == str(shim)
