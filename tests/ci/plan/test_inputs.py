"""What planning reads: the site's file, recipes and requirements, also of a foreign project."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.errors import ConfigError, UsageError
from ci.model.plan import ResultLimits, RunPlan
from ci.model.platforms import PLATFORMS
from ci.plan.planning import RunOptions
from ci.plan.project import (
    DEFAULT_REQUIREMENTS,
    RECIPE_FILES,
    config_option,
    load_project,
    plan_run,
)
from ci.util.files import RECIPES
from ci.util.invocation import REPOSITORY
from tests.ci.stored_history import git

# Its torch was in the base image.
LOCK_OF_A_RUN = """\
lock-version = "1.0"
created-by = "infini-ci"
packages = []

[tool.infini-ci.unlocked]
torch = "2.9.0+acme"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ci.yaml").write_text("project: tiny\nplatforms:\n  cpu: {}\n")
    return tmp_path


def plan(
    folder: Path, environ: dict[str, str] | None = None, platform: str = "cpu", **options: str
) -> RunPlan:
    project = load_project(folder / "ci.yaml", environ or {})
    places = {"source": folder, "results": folder / "results"}
    given = RunOptions.model_validate(options)
    [planned] = plan_run(project, [platform], run_id="run", options=given, **places)
    return planned


def test_a_foreign_project_gets_what_comes_with_the_program(folder: Path) -> None:
    planned = plan(folder)
    assert planned.needed_image.context == {
        **{name: (RECIPES / name).read_bytes() for name in RECIPE_FILES},
        "requirements-cpu.txt": DEFAULT_REQUIREMENTS.read_bytes(),
    }
    assert planned.host.requirements == DEFAULT_REQUIREMENTS
    assert planned.source == folder.resolve()


def test_a_project_has_its_own_recipe_and_requirements(folder: Path) -> None:
    settings = "{recipe: my.Dockerfile, requirements: needs.txt}"
    (folder / "ci.yaml").write_text(f"project: tiny\nplatforms:\n  cpu: {settings}\n")
    (folder / "my.Dockerfile").write_text("FROM x\n")
    (folder / "needs.txt").write_text("pytest\n")
    context = plan(folder).needed_image.context
    assert context == {"Dockerfile": b"FROM x\n", "requirements-cpu.txt": b"pytest\n"}


@pytest.mark.parametrize(
    ("platform", "requirements", "environ", "sees_torch"),
    [
        ("nvidia", "pytest\n", {}, True),
        ("nvidia", "pytest\ntorch==2.13.0\n", {}, False),
        ("nvidia", LOCK_OF_A_RUN, {}, True),
        ("cpu", "pytest\n", {}, False),
        ("cpu", "pytest\n", {"INFINI_CI_PYTHON_CPU": "python3.12"}, True),
        ("cpu", "torch\n", {"INFINI_CI_PYTHON_CPU": "python3.12"}, False),
        ("moore", "pytest\n", {}, False),  # simulated
    ],
)
def test_the_environment_that_sees_torch(
    folder: Path, platform: str, requirements: str, environ: dict[str, str], sees_torch: bool
) -> None:
    (folder / "needs.txt").write_text(requirements)
    (folder / "ci.yaml").write_text(
        "project: tiny\nplatforms:\n  cpu: {requirements: needs.txt}\n"
        "  nvidia: {requirements: needs.txt}\n  moore: {simulated: true, requirements: needs.txt}\n"
    )
    planned = plan(folder, environ, platform)
    assert planned.host.sees_torch is sees_torch
    assert planned.host.interpreter == environ.get(f"INFINI_CI_PYTHON_{platform.upper()}")


def test_the_sites_python_comes_after_the_option_and_the_environment(folder: Path) -> None:
    (folder / "ci.site.yaml").write_text("platforms: {cpu: {python: /site/python, engine: host}}\n")
    assert plan(folder).host.interpreter == "/site/python"
    assert plan(folder, {"INFINI_CI_PYTHON_CPU": "/my/python"}).host.interpreter == "/my/python"
    named = plan(folder, {"INFINI_CI_PYTHON_CPU": "/my/python"}, python="/named/python")
    assert named.host.interpreter == "/named/python"


def test_a_site_file_of_the_repository_chooses_nothing_that_runs_here(folder: Path) -> None:
    """Any clone may bring one."""
    site = folder / "ci.site.yaml"
    site.write_text("platforms: {cpu: {python: ./evil, engine: host}}\n")
    git(folder, "init", "--quiet")
    assert plan(folder).host.interpreter == "./evil"  # the user's own
    git(folder, "add", "ci.site.yaml")
    with pytest.raises(ConfigError, match=r"got platforms\.cpu\.engine, expected") as caught:
        plan(folder)
    assert f"INFINI_CI_SITE={site}" in str(caught.value.remedy)
    assert plan(folder, {"INFINI_CI_SITE": str(site)}).host.interpreter == "./evil"


def test_the_sites_certificates_and_limits(folder: Path) -> None:
    assert plan(folder).result_limits == ResultLimits()
    (folder / "ca.pem").write_text("certificates")
    limits = "results: {total_bytes: 1048576, entries: 200}\n"
    (folder / "ci.site.yaml").write_text(f"network: {{ca_bundle: ca.pem}}\n{limits}")
    assert plan(folder).needed_image.context["site-ca-bundle.pem"] == b"certificates"
    assert plan(folder).result_limits == ResultLimits(total_bytes=1 << 20, entries=200)


def test_the_sites_base_image(folder: Path) -> None:
    assert plan(folder).needed_image.base_image == PLATFORMS["cpu"].base_image
    (folder / "ci.site.yaml").write_text("platforms: {cpu: {base_image: site/python}}\n")
    assert plan(folder).needed_image.base_image == "site/python"
    environ = {"INFINI_CI_BASE_IMAGE_CPU": "environment/python"}
    assert plan(folder, environ).needed_image.base_image == "environment/python"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("INFINI_CI_BASE_IMAGE_CPU", "an image!", "got 'an image!', expected a string that"),
        ("INFINI_CI_ENGINE_CPU", "hots", "unknown engine 'hots', .*; did you mean 'host'"),
    ],
)
def test_a_wrong_variable_is_named(folder: Path, variable: str, value: str, message: str) -> None:
    with pytest.raises((ConfigError, UsageError), match=f"^{variable}: {message}"):
        plan(folder, {variable: value})


def test_the_sources_of_a_configuration_elsewhere(folder: Path) -> None:
    assert load_project(folder / "ci.yaml", {}).source == folder.resolve()
    nested = folder / "tests" / "simulated"
    nested.mkdir(parents=True)
    (nested / "ci.yaml").write_text("project: tiny\nsource: ../..\nplatforms: {cpu: {}}\n")
    assert load_project(nested / "ci.yaml", {}).source == folder.resolve()


def test_commands_name_a_configuration_of_this_repository() -> None:
    assert config_option(REPOSITORY / "tests" / "x.yaml") == "tests/x.yaml"
    assert config_option(REPOSITORY / "ci.yaml") is None
    assert config_option(Path("/elsewhere/ci.yaml")) is None


def test_files_of_a_site_are_relative_to_its_own_file(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "the site"
    (elsewhere / "wheels").mkdir(parents=True)
    (elsewhere / "ca.pem").write_text("certificates")
    links = "https://mirror.example/links wheels"
    (elsewhere / "ci.site.yaml").write_text(
        f"network: {{ca_bundle: ca.pem, pip_find_links: {links}, pip_proxy: p}}\n"
    )
    network = plan(folder, {"INFINI_CI_SITE": str(elsewhere / "ci.site.yaml")}).network
    assert network.ca_bundle == elsewhere / "ca.pem"
    assert network.wheelhouse == elsewhere / "wheels"
    assert network.environment["PIP_FIND_LINKS"].startswith("https://mirror.example/links ")
    assert network.environment["PIP_PROXY"] == "p"  # no path


def test_a_named_site_file_must_exist(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: no such file") as caught:
        plan(folder, {"INFINI_CI_SITE": "nowhere.yaml"})
    assert caught.value.remedy == "Correct the variable INFINI_CI_SITE, or unset it."


def test_findings_of_both_files_come_together(folder: Path) -> None:
    (folder / "ci.yaml").write_text("project: tiny\nplatforms: {}\n")
    (folder / "ci.site.yaml").write_text("network: 1\n")
    both = r"(?s)ci\.yaml:2: platforms: .*ci\.site\.yaml:1: network: "
    with pytest.raises(ConfigError, match=both):
        plan(folder)


def test_a_source_that_is_no_folder(folder: Path) -> None:
    project = load_project(folder / "ci.yaml", {})
    with pytest.raises(UsageError, match=r"--source: .*ci\.yaml is not a folder"):
        plan_run(project, ["cpu"], run_id="r", source=folder / "ci.yaml", results=folder)


def test_two_rows_of_one_table_never_have_one_name(folder: Path) -> None:
    text = (folder / "ci.yaml").read_text()
    (folder / "ci.yaml").write_text(
        text.replace("platforms:\n", "platforms:\n  moore: {label: CPU}\n", 1)
    )
    project = load_project(folder / "ci.yaml", {})
    both = ["moore", "cpu"]
    wanted = r"ci\.yaml: platforms\.cpu\.label: got 'CPU', the label of platforms\.moore, expected"
    with pytest.raises(ConfigError, match=wanted) as caught:
        plan_run(project, both, run_id="r", source=folder, results=folder)
    assert caught.value.remedy == "Give each its own `label:`, or run them separately."
    assert len(plan_run(project, both[:1], run_id="r", source=folder, results=folder)) == 1
