"""The platforms are those of the library's own table; rules that hold on all platforms.

Some places read the table: the C++ header and CMake's options, ``noxfile.py``, ``bench``. The other
places that name platforms are compared with it here, so that a new platform misses none of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable

import pytest
import yaml

from ci.model.platforms import PLATFORMS
from ci.util.files import REPOSITORY
from codegen import devices


def test_names_and_torch_devices_are_those_of_the_one_table() -> None:
    table = {device.name: device.torch_device for device in devices.PLATFORMS}
    assert {name: PLATFORMS[name].torch_device for name in PLATFORMS} == table
    assert all(PLATFORMS[name].name == name for name in PLATFORMS)


def test_every_platform_has_the_label_that_people_know() -> None:
    labels = [PLATFORMS[name].label for name in PLATFORMS]
    assert labels[:7] == ["CPU", "NVIDIA", "Iluvatar", "MetaX", "Cambricon", "Moore", "Ascend"]


def text_of(path: str) -> str:
    return (REPOSITORY / path).read_text(encoding="utf-8")


def named_in(path: str, pattern: str) -> Callable[[], set[str]]:
    """The first group of every match, in lower case."""
    return lambda: {name.lower() for name in re.findall(pattern, text_of(path), re.MULTILINE)}


def configured_in(path: str) -> Callable[[], set[str]]:
    return lambda: set(yaml.safe_load(text_of(path))["platforms"])


def assigned_in(path: str, name: str) -> set[str]:
    """Read, not imported: these modules need the installed library or torch."""
    for node in ast.parse(text_of(path)).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{path}: no {name}")


def labels_in_readme() -> set[str]:
    labels = " ".join(text_of("README.md").partition(" platforms (")[2].partition(")")[0].split())
    known = {platform.label: name for name, platform in PLATFORMS.items()}
    return {known.get(label, label) for label in labels.split(", ")}


SIMULATED_DEVICE = "tests/simulated/src/simulated_device/__init__.py"
# Where a developer adds a platform, as docs/add-a-platform.md lists it.
PLACES: dict[str, Callable[[], set[str]]] = {
    "src/include/infini/ops/device_type.h": named_in(
        "src/include/infini/ops/device_type.h", r'^    {DeviceType::k\w+, "(\w+)"'
    ),
    "ci/model/platforms.py": lambda: {
        name for name, platform in PLATFORMS.items() if platform.devices is not None
    },
    "ci.yaml": configured_in("ci.yaml"),
    "tests/simulated/ci.yaml": configured_in("tests/simulated/ci.yaml"),
    "src/cmake/Devices.cmake": named_in("src/cmake/Devices.cmake", r"^set\(device_files_(\w+) \""),
    "docker/platforms": lambda: {path.stem for path in REPOSITORY.glob("docker/platforms/*.sh")},
    "tests/ops/platforms.py": lambda: assigned_in("tests/ops/platforms.py", "HARDWARE"),
    "tests/ops/test_platforms.py": named_in(
        "tests/ops/test_platforms.py", r'^    \("\w+", "[^"]+", "(\w+)"\),$'
    ),
    "README.md": labels_in_readme,
    "docs/validate-a-release.md": named_in(
        "docs/validate-a-release.md", r"^\| (\w+) \| (?:`[^|]*[:/]|none:)"
    ),
}


def differences(names: Iterable[str]) -> dict[str, set[str]]:
    """What each place lacks of ``names`` or has beyond them. The CPU needs no device in any."""
    wanted = set(names)
    found = {place: (read() ^ wanted) - {"cpu"} for place, read in PLACES.items()}
    return {place: differing for place, differing in found.items() if differing}


def test_every_place_that_names_platforms_has_those_of_the_table() -> None:
    places = differences(device.name for device in devices.PLATFORMS)
    assert not places, f"{places}: see docs/add-a-platform.md"


def test_a_new_platform_is_missed_in_every_place() -> None:
    names = [*(device.name for device in devices.PLATFORMS), "newcomer"]
    missing = differences(names)
    assert [place for place in PLACES if "newcomer" not in missing.get(place, ())] == []


def simulated_device_differences(platforms: Iterable[devices.Platform]) -> set[str]:
    """What the simulated device's names lack of the plug-ins' torch devices or have beyond them."""
    wanted = {platform.torch_device for platform in platforms if platform.torch_plugin}
    return wanted ^ assigned_in(SIMULATED_DEVICE, "NAMES")


def test_the_simulated_device_can_be_each_device_that_a_plug_in_adds() -> None:
    assert simulated_device_differences(devices.PLATFORMS) == set(), "see docs/add-a-platform.md"


def test_a_new_plug_in_is_missed_in_the_simulated_device() -> None:
    fork = devices.Platform(name="fork", torch_device="cuda")
    assert simulated_device_differences([*devices.PLATFORMS, fork]) == set()
    new = devices.Platform(name="new", torch_device="acme", torch_plugin="torch_acme")
    assert simulated_device_differences([*devices.PLATFORMS, new]) == {"acme"}


@pytest.mark.parametrize("place", ["codegen/devices.py", *PLACES, SIMULATED_DEVICE])
def test_the_page_about_platforms_names_every_place(place: str) -> None:
    steps = text_of("docs/add-a-platform.md").partition("\n## 1.")[2].partition("\n## Run it")[0]
    assert f"`{place}" in steps


def test_the_images_of_the_documentation_are_those_of_the_table() -> None:
    rows = dict(
        re.findall(r"^\| (\w+) \| `([^`]+)`", text_of("docs/validate-a-release.md"), re.MULTILINE)
    )
    images = {name: each.base_image for name, each in PLATFORMS.items() if each.base_image}
    assert {name: rows.get(name) for name in images} == images
