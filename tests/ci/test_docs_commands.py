"""What the pages of docs/ show is so: the site file is valid, commands and options exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ci.cli import main
from ci.facts.acceptance import Acceptance
from ci.facts.benchmarks import read_benchmarks
from ci.model.platforms import PLATFORMS
from ci.model.results import Direction
from ci.plan.load import load_accepted, load_config, load_site, load_waivers
from ci.protocol.agent_files import benchmark_file
from ci.protocol.stage_kind import StageKind

ROOT = Path(__file__).resolve().parents[2]
RELEASE, MACHINES, HISTORY, CAPACITY = (
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("validate-a-release", "run-on-your-machines", "track-build-cost", "capacity")
)


def test_the_site_file_and_the_retention_are_valid(tmp_path: Path) -> None:
    block, retention = re.findall(r"^```yaml\n(.*?)^```$", MACHINES, re.MULTILINE | re.DOTALL)
    config = tmp_path / "ci.yaml"
    config.write_text(f"project: tiny\nplatforms: {{cpu: {{}}}}\n{retention}", encoding="utf-8")
    assert load_config(config).retention
    path = tmp_path / "ci.site.yaml"
    path.write_text(block, encoding="utf-8")
    site = load_site(path)
    named = {platform.engine for platform in site.platforms.values()}
    assert named == set(site.engines)


def test_the_rules_of_a_release_and_the_waivers_are_valid(tmp_path: Path) -> None:
    rules, waivers = re.findall(r"^```yaml\n(.*?)^```$", RELEASE, re.MULTILINE | re.DOTALL)
    config, file = tmp_path / "ci.yaml", tmp_path / "release-waivers.yaml"
    project = "project: tiny\nplatforms: {cpu: {}, accelerators: {}}\n"
    config.write_text(project + rules, encoding="utf-8")
    file.write_text(waivers, encoding="utf-8")
    release = load_config(config).release
    assert release
    assert release.waivers == file.name
    assert load_waivers(file).waivers[0].platform in release.required


def test_the_file_of_acceptances_is_valid(tmp_path: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", HISTORY, re.MULTILINE | re.DOTALL)
    [block] = [it for it in blocks if "\naccepted:\n" in it]
    path = tmp_path / "ci-accepted.yaml"
    path.write_text(block, encoding="utf-8")
    assert {*load_accepted(path).accepted[0].model_dump(exclude_none=True)} == {
        *Acceptance.model_fields
    } - {"run"}


def test_the_configuration_with_benchmarks_is_valid(tmp_path: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", HISTORY, re.MULTILINE | re.DOTALL)
    [block] = [it for it in blocks if "\nstages:\n" in it]
    path = tmp_path / "ci.yaml"
    path.write_text(block, encoding="utf-8")
    kinds = [stage.kind for stage in load_config(path).stages]
    assert kinds == [StageKind.COMMAND, StageKind.PYTEST, StageKind.BENCHMARK]


def test_the_form_of_other_tools_is_read(tmp_path: Path) -> None:
    blocks = re.findall(r"^```json\n(.*?)^```$", HISTORY, re.MULTILINE | re.DOTALL)
    [block] = [it for it in blocks if "unit" in it]
    (tmp_path / benchmark_file("bench")).write_text(block, encoding="utf-8")
    [found] = read_benchmarks(tmp_path, "bench").results
    assert (found.name, found.value, found.repetitions) == ("load", 1520.5, 20)
    assert (found.unit, found.direction) == ("images/s", Direction.HIGHER)


def test_it_shows_the_base_images_of_the_platforms() -> None:
    [command] = re.findall(r"^grep .*$", MACHINES, re.MULTILINE)
    shown = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    known = [(name, each.base_image) for name, each in PLATFORMS.items() if each.base_image]
    assert sorted(re.findall(r'/(\w+)\.toml:base_image = "(.+)"\n', shown.stdout)) == sorted(known)


@pytest.mark.parametrize(
    ("page", "commands"),
    [
        (RELEASE, ["run", "doctor", "gate", "attest", "export"]),
        (MACHINES, ["doctor", "bundle", "kit", "store", "gc"]),
        (HISTORY, ["history", "compare", "report", "import", "export"]),
        (CAPACITY, ["capacity"]),
    ],
    ids=["release", "machines", "history", "capacity"],
)
def test_options_exist(page: str, commands: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands:
        with pytest.raises(SystemExit, match=r"^0$"):
            main([command, "--help"])
        known = capsys.readouterr().out
        # Sessions of nox pass their arguments on to `run`.
        name = r"noxfile\.py -s release --" if command == "run" else rf"python -m ci {command}"
        shown = re.findall(rf"{name} ([^`#\n]*)", page)
        assert shown
        assert [o for text in shown for o in re.findall(r"--[a-z-]+", text) if o not in known] == []
