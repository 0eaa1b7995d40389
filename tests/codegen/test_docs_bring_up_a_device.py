"""What docs/bring-up-a-device.md shows is so: its YAML generates, its files and options exist."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from ci.plan.config import PlatformConfig
from ci.plan.load import load_config
from codegen.aten import find_torch
from codegen.backend.coverage import Status
from codegen.backend.emit import generate_backend
from codegen.cli import main
from tests.built import build_distribution, cached_compiler, make_environment, run, wheel_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "bring-up-a-device.md").read_text(encoding="utf-8")
PLATFORM_PAGE = (ROOT / "docs" / "add-a-platform.md").read_text(encoding="utf-8")


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def documents() -> list[str]:
    """What the commands write into backend.yaml: the first three operators, then the others."""
    return re.findall(r"^cat >>? \S+/backend\.yaml <<'END'\n(.*?)^END$", PAGE, re.M | re.S)


def test_the_yaml_generates(tmp_path: Path) -> None:
    minimal, added = documents()
    source = tmp_path / "backend.yaml"
    source.write_text(minimal + added, encoding="utf-8")
    outcome = generate_backend(source, tmp_path / "generated", find_torch(None))
    assert "RegisterAutogradPrivateUse1.cpp" in outcome.written
    coverage = json.loads((tmp_path / "generated" / "coverage.json").read_text(encoding="utf-8"))
    assert coverage["required_missing"] == []
    if not coverage["torch_version"].startswith("2.13."):
        return
    counts = dict(re.findall(r"^\| \*\*(\w+)\*\* \| ([\d,]+) \|", PAGE, re.MULTILINE))
    assert counts == {status: f"{count:,}" for status, count in coverage["counts"].items()}


def test_the_required_operators_that_it_names_are_those_of_the_report(tmp_path: Path) -> None:
    source = tmp_path / "backend.yaml"
    source.write_text(documents()[0], encoding="utf-8")
    generate_backend(source, tmp_path / "generated", find_torch(None))
    report = (tmp_path / "generated" / "coverage.md").read_text(encoding="utf-8")
    section = report.split("required by every backend")[1].split("\n## ")[0]
    required = re.findall(r"^\| (`\S+`) \|", section, re.MULTILINE)
    assert required
    assert [name for name in required if name not in PAGE] == []
    assert all(f"**{status.value}**" in PAGE for status in Status)


RUNS_HERE = (
    "<!-- not run: tests/codegen/test_docs_bring_up_a_device.py runs it, outside of a checkout -->"
)


def typed() -> list[str]:
    """The commands of steps 1 to 4 and those marked: others need hardware or the built library."""
    block = re.compile(r"^([^\n]*)\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    steps = PAGE.partition("\n## 4.")[0]
    assert {comment for comment, _ in block.findall(steps)} == {RUNS_HERE}
    return [commands for comment, commands in block.findall(PAGE) if comment == RUNS_HERE]


@pytest.mark.complete
def test_what_a_person_types_is_a_device(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    """Every command as typed and in order, in an empty folder and an environment of its own."""
    wheel = wheel_of(build_distribution(tmp_path_factory, "codegen"))
    python = make_environment(tmp_path / "venv", wheel)
    script = "set -e\n" + "".join(typed())
    for old, new in (
        ("checkout=$PWD ", f"checkout={ROOT} "),
        # The same, built before: pip would write into the checkout, or ask an index.
        (
            "pip install $checkout/codegen",
            f"pip install --no-index {wheel}",
        ),
        ("--no-build-isolation\n", "--no-build-isolation --no-deps --no-index\n"),
    ):
        assert old in script
        script = script.replace(old, new)
    (folder := tmp_path / "empty").mkdir()
    done = run(
        *("bash", "-c", script),
        folder=folder,
        PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        SKBUILD_CMAKE_DEFINE="CMAKE_CXX_FLAGS_RELEASE=-O0",  # the speed is not the point
        CI="true",  # with which torch's test runner needs another package
        **cached_compiler(request),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = re.findall(r"^# (.*acme:0.*)$", script, re.MULTILINE)
    assert len(shown) == 2
    assert [line for line in done.stdout.splitlines() if "acme:0" in line] == shown
    assert "note" not in done.stderr  # of kernels that the YAML does not list
    [lines] = [block for block in blocks("text") if "TestOperatorsACME" in block]
    for line in lines.splitlines():  # of torch's own operator tests
        assert re.search(re.escape(line).replace(re.escape("..."), ".*"), done.stderr), line


def test_the_configuration_is_valid(tmp_path: Path) -> None:
    [text] = blocks("yaml")
    document = yaml.safe_load(text)
    PlatformConfig.model_validate(document["platforms"].pop("acme"))
    # The loader takes the platforms of the table only.
    path = tmp_path / "acme.yaml"
    document["platforms"]["cpu"] = {}
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    assert [stage.name for stage in load_config(path).stages] == ["install", "plug-in", "pytest"]


@pytest.mark.parametrize("page", [PAGE, PLATFORM_PAGE], ids=["device", "platform"])
def test_the_files_that_it_names_exist(page: str) -> None:
    names = set(re.findall(r"`((?:codegen|docker|src/cmake|ci|tests)/[\w./-]+)`", page))
    assert len(names) > 5
    made = {"ci/platforms/acme.toml", "docker/platforms/acme.sh"}
    assert [name for name in sorted(names - made) if not (ROOT / name).exists()] == []


def test_the_options_of_the_generator_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["backend-stubs", "--help"])
    help_text = capsys.readouterr().out
    commands = re.findall(r"^python -m infini\.codegen backend-stubs (.*)$", PAGE, re.MULTILINE)
    options = {option for command in commands for option in re.findall(r"--[\w-]+", command)}
    assert options
    assert [option for option in sorted(options) if option not in help_text] == []
