"""What docs/new-device.md shows is so: its YAML generates, its files and options exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ci.plan.config import PlatformConfig
from codegen.aten import find_torch
from codegen.backend.coverage import Status
from codegen.backend.emit import generate_backend
from codegen.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "new-device.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_yaml_generates(tmp_path: Path) -> None:
    minimal, autograd, _ = blocks("yaml")
    source = tmp_path / "backend.yaml"
    source.write_text(minimal + autograd, encoding="utf-8")
    outcome = generate_backend(source, tmp_path / "generated", find_torch(None))
    assert "RegisterAutogradPrivateUse1.cpp" in outcome.written


def test_the_required_operators_that_it_names_are_those_of_the_report(tmp_path: Path) -> None:
    source = tmp_path / "backend.yaml"
    source.write_text(blocks("yaml")[0], encoding="utf-8")
    generate_backend(source, tmp_path / "generated", find_torch(None))
    report = (tmp_path / "generated" / "coverage.md").read_text(encoding="utf-8")
    section = report.split("required by every backend")[1].split("\n## ")[0]
    required = re.findall(r"^\| (`\S+`) \|", section, re.MULTILINE)
    assert required
    assert [name for name in required if name not in PAGE] == []
    assert all(f"**{status.value}**" in PAGE for status in Status if status != Status.SUPPORTED)


def test_the_platform_is_valid_configuration() -> None:
    platforms = yaml.safe_load(blocks("yaml")[-1])
    PlatformConfig.model_validate(platforms["acme"])


def test_the_files_that_it_names_exist() -> None:
    names = set(re.findall(r"`((?:codegen|src/cmake|ci|tests)/[\w./-]+)`", PAGE))
    assert len(names) > 5
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []


def test_the_options_of_the_generator_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["backend-stubs", "--help"])
    help_text = capsys.readouterr().out
    commands = re.findall(r"^python -m codegen backend-stubs (.*)$", PAGE, re.MULTILINE)
    options = {option for command in commands for option in re.findall(r"--[\w-]+", command)}
    assert options
    assert [option for option in sorted(options) if option not in help_text] == []
