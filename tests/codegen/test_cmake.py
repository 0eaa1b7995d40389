"""What CMake says to a wrong combination of options, before anything is compiled."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from codegen.aten import find_torch
from codegen.devices import platforms

pytestmark = [
    pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed"),
    pytest.mark.skipif(shutil.which("ninja") is None, reason="ninja is not installed"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler is installed"),
]


def run_cmake(
    root: Path, build: Path, *options: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    python = f"-DPython_EXECUTABLE={sys.executable}"
    # ninja comes with the tests; `make`, CMake's own choice, is not on every machine.
    return subprocess.run(
        ["cmake", "-G", "Ninja", "-S", root, "-B", build, python, *options],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def configure(root: Path, build: Path, *options: str) -> str:
    """Configures, expects it to fail, and returns the message on one line."""
    finished = run_cmake(root, build, *options)
    assert finished.returncode != 0
    return re.sub(r"\s+", " ", finished.stderr)


def compiled(build: Path) -> set[Path]:
    """The source files that a build compiles, alone or as a part of a unity."""
    entries = json.loads((build / "compile_commands.json").read_text())
    files = {Path(entry["file"]) for entry in entries}
    unities = {path for path in files if path.parent.name == "Unity"}
    parts = (re.findall(r'(?m)^#include "(.+)"$', path.read_text()) for path in unities)
    return (files - unities) | {Path(part) for each in parts for part in each}


def test_an_older_cmake(root: Path, tmp_path: Path) -> None:
    script = tmp_path / "older.cmake"
    script.write_text(f'set(CMAKE_VERSION 3.19.8)\ninclude("{root / "CMakeLists.txt"}")\n')
    finished = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, check=False)
    assert finished.returncode != 0
    message = re.sub(r"\s+", " ", finished.stderr)
    assert "This is CMake 3.19.8; expected 3.20 or later" in message
    assert "Run `python -m pip install -U cmake`." in message


def test_more_than_one_accelerator(root: Path, tmp_path: Path) -> None:
    """Each platform but the CPU has an option, by its name."""
    names = [f"WITH_{platform.name.upper()}" for platform in platforms() if platform.name != "cpu"]
    message = configure(root, tmp_path, *(f"-D{name}=ON" for name in names))
    assert "At most one accelerator can be enabled beside the CPU" in message
    assert f"got {', '.join(names)}. " in message
    assert "Set one of them to ON" in message


def test_another_accelerator_recompiles_one_file(root: Path, tmp_path: Path) -> None:
    def commands(**options: str) -> dict[str, str]:
        values = [f"-D{name}={value}" for name, value in options.items()]
        finished = run_cmake(root, tmp_path, "-DWITH_TORCH=OFF", *values)
        assert finished.returncode == 0, finished.stderr
        entries = json.loads((tmp_path / "compile_commands.json").read_text())
        return {Path(entry["file"]).name: entry["command"] for entry in entries}

    before = commands(WITH_ASCEND="ON")
    after = commands(WITH_ASCEND="OFF", WITH_CAMBRICON="ON")
    assert [name for name in before if before[name] != after[name]] == ["types.cc"]
    assert "-DINFINI_OPS_ACCELERATOR=kAscend " in before["types.cc"]
    assert "-DINFINI_OPS_ACCELERATOR=kCambricon " in after["types.cc"]


def test_no_device(root: Path, tmp_path: Path) -> None:
    message = configure(root, tmp_path, "-DWITH_CPU=OFF", "-DAUTO_DETECT_DEVICES=OFF")
    assert "No device is enabled" in message


@pytest.mark.parametrize(
    ("platform", "options", "got", "remedy"),
    [
        (
            "ascend",
            ["WITH_NVIDIA=ON"],
            "WITH_NVIDIA (set by an option)",
            "Set WITH_ASCEND to ON and AUTO_DETECT_DEVICES to OFF",
        ),
        (
            "ascend",
            ["AUTO_DETECT_DEVICES=OFF"],
            "no accelerator (no WITH_ASCEND=ON, and AUTO_DETECT_DEVICES is OFF)",
            "Set WITH_ASCEND to ON and AUTO_DETECT_DEVICES to OFF",
        ),
        (
            "cpu",
            ["WITH_METAX=1"],
            "WITH_METAX (set by an option)",
            "Set AUTO_DETECT_DEVICES and WITH_METAX to OFF",
        ),
    ],
)
def test_a_build_for_another_platform_than_the_runs(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    options: list[str],
    got: str,
    remedy: str,
) -> None:
    monkeypatch.setenv("INFINI_CI_PLATFORM", platform)
    message = configure(root, tmp_path, *(f"-D{option}" for option in options))
    assert f"This run is for {platform} (INFINI_CI_PLATFORM), " in message
    assert f"got {got}. {remedy}, in SKBUILD_CMAKE_DEFINE under platforms.{platform}." in message


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Path:
    """A copy of what a build reads."""
    for name in ("src", "codegen", "ci/platforms"):
        shutil.copytree(root / name, tmp_path / "tree" / name)
    shutil.copy(root / "CMakeLists.txt", tmp_path / "tree")
    return tmp_path / "tree"


ACME = """\
order = {order}
label = "Acme"
torch_device = "acme"
torch_plugin = "torch_acme"

[library]
detected_by = ["/dev/no-acme", "{device}*"]
"""


def test_a_platform_is_one_file(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CMake gets its option and finds its device, and C++ gets its enumerator."""
    (tmp_path / "device0").touch()
    text = ACME.format(order=len(platforms()), device=tmp_path / "device")
    (tree / "ci" / "platforms" / "acme.toml").write_text(text)
    finished = run_cmake(tree, tmp_path / "build", "-DWITH_TORCH=OFF")
    assert finished.returncode == 0, finished.stderr
    assert f"Found {tmp_path / 'device0'}: enabling WITH_ACME" in finished.stdout
    header = tmp_path / "build" / "include" / "infini" / "ops" / "device_type.h"
    assert '{DeviceType::kAcme, "acme", "acme", "torch_acme"},\n};' in header.read_text()
    rules = (tmp_path / "build" / "build.ninja").read_text()
    assert f" {tree / 'ci' / 'platforms' / 'acme.toml'} " in rules

    monkeypatch.setenv("INFINI_CI_PLATFORM", "nvidia")
    message = configure(tree, tmp_path / "build")
    expected = f"got WITH_ACME (AUTO_DETECT_DEVICES is ON and found {tmp_path / 'device0'})."
    assert expected in message


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (ACME.format(order=1, device=""), "order: got 1, expected 2: all files together count"),
        ("order = 99\n", "missing 1 required keyword-only argument: 'torch_device'. See docs/add"),
        ("order = \n", "Invalid value (at line 1, column 9). See docs/add-a-platform.md"),
        ('torch_device = "a"\n[library]\nfile = 1\n', "unexpected keyword argument 'file'. See"),
    ],
)
def test_a_wrong_file_of_a_platform(
    tree: Path, tmp_path: Path, written: str, expected: str
) -> None:
    (tree / "ci" / "platforms" / "acme.toml").write_text(written)
    message = configure(tree, tmp_path / "build")
    assert expected in message
    assert message.startswith(f"codegen: error: {tree / 'ci' / 'platforms'}/")
    assert "Reading ci/platforms failed; the message is above." in message
    assert "Traceback" not in message


@pytest.mark.parametrize(("platform", "option"), [("ascend", "ASCEND=ON"), ("cpu", "ASCEND=OFF")])
def test_a_build_for_the_platform_of_the_run(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, option: str
) -> None:
    monkeypatch.setenv("INFINI_CI_PLATFORM", platform)
    finished = run_cmake(root, tmp_path, f"-DWITH_{option}", "-DWITH_TORCH=OFF")
    assert finished.returncode == 0, finished.stderr


def test_torch_requested_but_missing(root: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty" / "bin" / "python"
    message = configure(
        root, tmp_path / "build", "-DWITH_TORCH=ON", f"-DTORCH_PYTHON_EXECUTABLE={python}"
    )
    assert f"WITH_TORCH is ON, but {python} has no torch. Install torch there" in message


def test_a_torch_of_the_user_is_found_by_an_isolated_build(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip hides ``pip install --user torch`` from the build; the library does not search there."""
    pytest.importorskip("torchgen", reason="torch is not installed")
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path))
    monkeypatch.setenv("INFINI_OPS_TORCH_OPS", "abs")
    # A virtual environment has no user's packages unless it has the system's.
    venv.create(tmp_path / "python", with_pip=False, system_site_packages=True)
    python = tmp_path / "python" / "bin" / "python"
    show = "import site; print(site.getusersitepackages())"
    asked = subprocess.run([python, "-c", show], capture_output=True, text=True, check=True)
    packages = Path(asked.stdout.strip())
    packages.mkdir(parents=True)
    installed = find_torch()
    (packages / "torch").symlink_to(installed.torch)
    (packages / "torchgen").symlink_to(installed.torchgen)
    monkeypatch.setenv("PYTHONNOUSERSITE", "1")
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is not None)"
    if subprocess.run([python, "-c", find], check=False).returncode:
        pytest.skip("the system's Python has torch, which comes first")
    finished = run_cmake(root, tmp_path / "build", f"-DTORCH_PYTHON_EXECUTABLE={python}")
    assert finished.returncode == 0, finished.stderr
    assert f"Found torch in {packages}: enabling WITH_TORCH" in finished.stdout
    installation = (tmp_path / "build" / "src" / "cmake_install.cmake").read_text()
    assert '$ORIGIN:$ORIGIN/../../torch/lib"' in installation.replace("\\", "")


def test_off_is_off_where_torch_is_installed(root: Path, tmp_path: Path) -> None:
    """Detection fills in only the options that are not set."""
    pytest.importorskip("torchgen", reason="torch is not installed")
    detected = run_cmake(root, tmp_path / "detected")
    assert "enabling WITH_TORCH" in detected.stdout
    assert (tmp_path / "detected" / "generated" / "operator_table.cc").exists()
    off = run_cmake(root, tmp_path / "off", "-DWITH_TORCH=OFF")
    assert "enabling WITH_TORCH" not in off.stdout
    assert not (tmp_path / "off" / "generated").exists()


def test_two_implementations_of_one_place(tree: Path, tmp_path: Path) -> None:
    """Found before anything is compiled; loading such a library would end the process."""
    with (tree / "src" / "core" / "types.cc").open("a") as source:
        source.write("INFINI_OPS_REGISTER(Add, Device::Type::kCpu, 0);")
    message = configure(tree, tmp_path / "build", "-DWITH_TORCH=OFF")
    assert re.search(
        r"src/\S+:\d+: add already has an implementation for cpu at slot 0, in src/\S+:\d+; give",
        message,
    )
    assert {"src/core/types.cc", "src/cpu/add.cc"} == set(re.findall(r"src/\w+/\w+\.cc", message))
    assert "Reading the registrations failed; the message is above." in message


def test_kernels_of_unselected_operators_are_not_compiled(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = {"elementwise.cc", "isa.cc", "iteration.cc", "parallel.cc", "rows.cc"}
    for value, added in (
        ("add,rms_norm", {"add.cc", "rms_norm.cc", "norm.cc"}),
        ("gem*", {"gemm.cc", "product.cc"}),
        ("cast", {"cast.cc", "convert.cc"}),
        ("reshape_and_cache_flash", {"reshape_and_cache_flash.cc", "cache.cc"}),
        ("topk_softmax", {"topk_softmax.cc", "convert.cc", "routing.cc", "softmax.cc"}),
    ):
        monkeypatch.setenv("INFINI_OPS_TORCH_OPS", value)
        finished = run_cmake(root, tmp_path, "-DWITH_TORCH=OFF")
        assert finished.returncode == 0, finished.stderr
        assert {path.name for path in compiled(tmp_path) if path.parent.name == "cpu"} == (
            shared | added
        )
        metadata = json.loads((tmp_path / "registry" / "native_ops_metadata.json").read_text())
        names = {f"{each['name']}.cc" for each in metadata["ops"]}
        of_several = {"cache.cc", "convert.cc", "norm.cc", "product.cc", "routing.cc", "softmax.cc"}
        assert names == added - of_several
        left_out = {f"{each['name']}.cc" for each in metadata["not_selected"]}
        bases = {f"{path.stem}.cc" for path in (root / "src" / "base").glob("*.h")}
        assert left_out == bases - names
    monkeypatch.setenv("INFINI_OPS_TORCH_OPS", "abs")
    message = configure(root, tmp_path, "-DWITH_TORCH=OFF")
    assert "'abs' is not a hand-written operator, and this build has no torch" in message


def test_the_environment_narrows_each_configuration(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one build folder: pip configures each time. CMake watches what it was generated from."""
    pytest.importorskip("torchgen", reason="torch is not installed")
    narrowing = tmp_path / "narrow.yaml"
    narrowing.write_text("operators:\n  - exp\n")
    for value, operators in (("abs,add", ["abs.h"]), (str(narrowing), ["exp.h"])):
        monkeypatch.setenv("INFINI_OPS_TORCH_OPS", value)
        finished = run_cmake(root, tmp_path / "build")
        assert finished.returncode == 0, finished.stderr
        headers = (tmp_path / "build" / "generated" / "base").iterdir()
        assert [path.name for path in headers] == operators
    rules = (tmp_path / "build" / "build.ninja").read_text()
    for name in ("codegen/cpp.py", "codegen/templates/base.h.j2", "codegen/torch_ops.yaml"):
        assert f" {root / name} " in rules
    assert f" {root / 'src' / 'base' / 'add.h'} " in rules
    assert f" {narrowing} " in rules
    assert "native_functions.yaml " in rules
    (watched,) = re.findall(r"^build build\.ninja.*: RERUN_CMAKE (.*)$", rules, re.MULTILINE)
    assert f" {root / 'src' / 'cpu' / 'add.cc'} " in watched  # for what it registers

    monkeypatch.setenv("INFINI_OPS_TORCH_OPS", "abz")
    finished = run_cmake(root, tmp_path / "build")
    assert finished.returncode != 0
    assert "INFINI_OPS_TORCH_OPS: torch " in finished.stderr
    assert "The generator failed; its message is above." in finished.stderr


# Operators whose arguments are of each class of tensors.
SOME = "add,cat,index_put_,native_layer_norm"


@pytest.mark.complete
@pytest.mark.skipif(shutil.which("clang++") is None, reason="clang++ is not installed")
def test_clang_builds_the_library(root: Path, tmp_path: Path) -> None:
    finished = run_cmake(root, tmp_path, INFINI_OPS_TORCH_OPS=SOME, CXX="clang++")
    assert finished.returncode == 0, finished.stderr
    command = ["cmake", "--build", str(tmp_path)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout
    assert "warning:" not in built.stdout
