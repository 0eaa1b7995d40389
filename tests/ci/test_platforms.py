"""A platform is one file of ``ci/platforms``, which everything else reads."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path

import grimp
import pytest
from pydantic import TypeAdapter

from ci.errors import ConfigError, ExitCode
from ci.model.platforms import FOLDER, GROUPS, PLATFORMS, DeviceFacts, Platform, read_platform
from ci.plan.load import load_config
from ci.util.invocation import REPOSITORY
from codegen import devices

PAGE = (REPOSITORY / "docs" / "add-a-platform.md").read_text(encoding="utf-8")


def test_the_platforms_come_in_their_order() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(PLATFORMS)
    assert [platform.order for platform in PLATFORMS.values()] == list(range(len(PLATFORMS)))
    labels = [platform.label for platform in PLATFORMS.values()]
    assert labels[:7] == ["CPU", "NVIDIA", "Iluvatar", "MetaX", "Cambricon", "Moore", "Ascend"]


def test_the_library_has_the_same_platforms() -> None:
    def facts(platform: Platform | devices.Platform) -> tuple[str, int, str, str | None]:
        return platform.name, platform.order, platform.torch_device, platform.torch_plugin

    assert [*map(facts, devices.platforms())] == [*map(facts, PLATFORMS.values())]


def test_this_program_does_not_import_the_library() -> None:
    graph = grimp.build_graph("ci", include_external_packages=True, cache_dir=None)
    assert "codegen" not in graph.modules


@pytest.mark.parametrize("kind", [Platform, devices.Platform])
def test_every_field_has_its_type(kind: type[Platform | devices.Platform]) -> None:
    known = PLATFORMS.values() if kind is Platform else devices.platforms()
    for platform in known:
        TypeAdapter(kind).validate_json(json.dumps(asdict(platform)), strict=True)


@pytest.mark.parametrize("platform", [*devices.platforms()][1:], ids=lambda each: each.name)
def test_an_accelerator_can_be_found(platform: devices.Platform) -> None:
    assert platform.detected_by
    assert platform.hardware
    assert platform.examples
    assert PLATFORMS[platform.name].devices is not None


@pytest.mark.parametrize("config", ["ci.yaml", "tests/simulated/ci.yaml"])
def test_this_project_configures_every_platform(config: str) -> None:
    assert list(load_config(REPOSITORY / config).platforms) == list(PLATFORMS)


@pytest.mark.parametrize("folder", ["docker/platforms", "tests/simulated/contracts"])
def test_files_of_platforms_have_their_names(folder: str) -> None:
    assert {path.stem for path in (REPOSITORY / folder).iterdir()} <= set(PLATFORMS)


def test_the_groups() -> None:
    assert set(GROUPS["accelerators"]) == set(PLATFORMS) - {"cpu"}
    assert {"cambricon", "moore", "ascend"} <= set(GROUPS["plugins"]) < set(GROUPS["accelerators"])
    assert not set(GROUPS) & set(PLATFORMS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("label = \n", "Invalid value (at line 1, column 9)"),
        ('label = "Acme"\n', "missing 2 required keyword-only arguments: 'order' and 'torch"),
        ('[devices]\nresources = "x"\n', "unexpected keyword argument 'resources'"),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "acme.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(expected)) as error:
        read_platform(path)
    assert str(error.value).startswith(f"{path}: ")
    assert error.value.remedy == "docs/add-a-platform.md describes its fields."
    assert error.value.exit_code is ExitCode.USAGE


def test_a_wrong_file_has_no_traceback(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "ci", tmp_path / "ci", ignore=shutil.ignore_patterns("__pyc*"))
    (tmp_path / "ci" / "platforms" / "acme.toml").write_text("label = 1\nfile = 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "ci", "platforms"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == ExitCode.USAGE
    assert done.stderr == (
        f"error: {tmp_path}/ci/platforms/acme.toml: Platform.__init__() got an unexpected keyword"
        " argument 'file'\ndocs/add-a-platform.md describes its fields.\n"
    )


def test_the_example_of_the_page(tmp_path: Path) -> None:
    """It is a complete file: the other platforms and it are read together."""
    [text] = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "acme.toml"
    path.write_text(re.sub(r"(?m)^order = \d+", f"order = {len(PLATFORMS)}", text))
    acme = read_platform(path)
    assert acme.devices is not None
    assert acme.base_image
    *_, of_library = devices.platforms(tmp_path)
    assert (of_library.name, of_library.torch_plugin) == ("acme", acme.torch_plugin)
    assert re.search(str(of_library.hardware), of_library.examples[0], re.IGNORECASE)


def test_the_page_describes_every_field() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    kinds = (Platform, DeviceFacts, devices.Platform)
    known = {each.name for kind in kinds for each in fields(kind)}
    assert described == known - {"name", "devices"}
