"""Other environments of a platform: how an option names them, and the plans that they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.errors import UsageError
from ci.model.plan import RunPlan
from ci.model.results import PlatformResult
from ci.plan.environment import EnvironmentKind, read_choice, with_requirement
from ci.plan.project import load_project, plan_run
from ci.run.cells import is_made_of
from tests.ci.stored_history import result

CONFIG = "project: tiny\nplatforms: {cpu: {base_image: base:1, requirements: needs.txt}}\n"
NEEDS = "pytest\n--find-links x\nTorch >= 2  # any\ntorch-other\n"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("torch==2.13.0", EnvironmentKind.REQUIREMENT),
        ("torch>=2,<3", EnvironmentKind.REQUIREMENT),
        ("torch @ https://example.org/torch.whl", EnvironmentKind.REQUIREMENT),
        ("torch", EnvironmentKind.IMAGE),
        ("vendor/torch:25.11", EnvironmentKind.IMAGE),
        (f"vendor.example:5000/torch@sha256:{'0' * 64}", EnvironmentKind.IMAGE),
    ],
)
def test_what_a_text_names(text: str, kind: EnvironmentKind) -> None:
    choice = read_choice(text, "--old-env")
    assert (choice.kind, choice.text) == (kind, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("torch=2", r"--old-env: got 'torch=2', expected a requirement: "),
        ("none.txt", r"--old-env: got 'none\.txt', expected an existing requirements file, a requ"),
        ("/no/such/file", r"got '/no/such/file', expected an existing requirements file"),
        ("", r"got '', expected an existing requirements file"),
    ],
)
def test_what_names_nothing(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_choice(text, "--old-env")


def test_a_requirement_replaces_that_of_its_distribution() -> None:
    expected = "pytest\n--find-links x\ntorch-other\nTORCH==2.13.0\n"
    assert with_requirement(NEEDS, "TORCH==2.13.0") == expected


def planned(folder: Path, text: str | None = None) -> RunPlan:
    (folder / "ci.yaml").write_text(CONFIG, encoding="utf-8")
    (folder / "needs.txt").write_bytes(NEEDS.encode() + b"# \xff\n")
    site = {"INFINI_CI_BASE_IMAGE_CPU": "site:1"} if text else {}
    project = load_project(folder / "ci.yaml", site)
    if text:
        made = folder / "made"
        made.mkdir(exist_ok=True)
        project = read_choice(text, "--old-env").applied(project, "cpu", made)
    [plan] = plan_run(project, ["cpu"], run_id="r", source=folder, results=folder / "results")
    return plan


def test_an_image_precedes_that_of_the_site(tmp_path: Path) -> None:
    plan, usual = planned(tmp_path, "new:2"), planned(tmp_path)
    assert plan.needed_image.base_image == "new:2"
    assert plan.needed_image.tag != usual.needed_image.tag
    assert plan.host.requirements == usual.host.requirements


def test_requirements_are_those_of_the_image_too(tmp_path: Path) -> None:
    plan = planned(tmp_path, "torch==2.13.0")
    text = plan.needed_image.context["requirements-cpu.txt"]
    assert plan.host.requirements.read_bytes() == text
    assert text.endswith(b"# \xff\ntorch==2.13.0\n")
    assert not plan.host.sees_torch
    (tmp_path / "other.txt").write_text("pytest\n")
    assert planned(tmp_path, str(tmp_path / "other.txt")).host.requirements.samefile(
        tmp_path / "other.txt"
    )


def test_a_requirement_does_not_change_a_lock(tmp_path: Path) -> None:
    planned(tmp_path)
    lock = tmp_path / "needs.txt"
    lock.write_text('lock-version = "1.0"\ncreated-by = "pip"\npackages = []\n')
    project = load_project(tmp_path / "ci.yaml", {})
    choice = read_choice("torch==2.13.0", "--old-env")
    with pytest.raises(
        UsageError, match=r"needs\.txt: the requirements of cpu are a lock"
    ) as error:
        choice.applied(project, "cpu", tmp_path)
    assert error.value.remedy
    assert lock.read_text().startswith("lock-version")


def stored(engine: str, **image: str) -> PlatformResult:
    return result(environment={"engine": {"name": engine, "image": image}})


def test_stored_runs_of_the_same_environment(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    tag = plan.needed_image.tag
    assert is_made_of(stored("docker", reference=tag), plan)
    assert not is_made_of(stored("docker", reference="infini-ci/cpu:other"), plan)
    assert not is_made_of(stored("host", reference=tag), plan)
    assert not is_made_of(stored("host"), plan)  # of an older version, which did not record it
