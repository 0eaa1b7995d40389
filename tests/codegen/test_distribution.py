"""The distribution `infini-codegen`: its files, its command and its CMake package, elsewhere."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from ci.util.invocation import REPOSITORY
from tests.built import build_distribution, make_environment, run, wheel_of

DOCUMENT = """\
backend: PrivateUse1
cpp_namespace: acme
class_name: Kernels
supported:
  - empty.memory_format
  - add.out
"""
SOURCE = """\
#include "PrivateUse1NativeFunctions.h"
at::Tensor& acme::Kernels::add_out(const at::Tensor&, const at::Tensor&, const at::Scalar&,
                                   at::Tensor& out) { return out; }
at::Tensor acme::Kernels::empty(at::IntArrayRef, std::optional<at::ScalarType>,
    std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
    std::optional<at::MemoryFormat>) { return {}; }
"""
PROJECT = """\
cmake_minimum_required(VERSION 3.20)
project(Acme LANGUAGES CXX)
find_package(InfiniOpsCodegen REQUIRED)
add_library(acme SHARED kernels.cc)
infini_ops_generate_backend(acme YAML backend.yaml IMPL kernels.cc)
"""
needs_cmake = pytest.mark.skipif(
    not all(map(shutil.which, ("cmake", "ninja", "c++"))),
    reason="cmake, ninja or a C++ compiler is not installed",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_distribution(tmp_path_factory, "codegen")


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed") / "venv"
    return make_environment(folder, wheel_of(built))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A device's project, and a `codegen` of its own that must not be taken for ours."""
    files = {"backend.yaml": DOCUMENT, "kernels.cc": SOURCE, "CMakeLists.txt": PROJECT}
    for name, text in {**files, "codegen/__init__.py": "raise SystemExit(9)\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        return {name: archive.read(name) for name in names}


def test_it_has_the_files_that_the_build_of_a_device_needs(built: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        "recipe", REPOSITORY / "codegen" / "hatch_build.py"
    )
    assert spec
    assert spec.loader
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    listed = run("git", "ls-files", *recipe.TREE, folder=REPOSITORY).stdout.splitlines()
    if not listed:
        pytest.skip("not a clone")
    expected = {}
    for name in listed:
        inside = name.removeprefix("codegen/").split("/")
        if name.startswith("codegen/") and inside[0] in recipe.OF_THE_DISTRIBUTION:
            if inside[0] == "installed":
                expected[f"infini/codegen/{inside[1]}"] = (REPOSITORY / name).read_bytes()
        else:
            expected[f"infini/codegen/tree/{name}"] = (REPOSITORY / name).read_bytes()
    assert contents(wheel_of(built)) == expected


def test_a_wheel_of_the_source_distribution_is_the_same(built: Path, tmp_path: Path) -> None:
    [source] = built.glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    done = run(*pip, "--no-index", source, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert contents(wheel_of(tmp_path)) == contents(wheel_of(built))


def test_the_version_is_that_of_the_library() -> None:
    library, generators = (
        re.findall(r'^version = "(.+)"$', (REPOSITORY / path).read_text(), re.MULTILINE)
        for path in ("pyproject.toml", "codegen/pyproject.toml")
    )
    assert library == generators


def test_it_generates_in_any_folder(python: Path, project: Path) -> None:
    command = (python, "-m", "infini.codegen")
    options = ("--source-yaml", "backend.yaml", "--output-dir", "out", "--impl-path", "kernels.cc")
    done = run(*command, "backend-stubs", *options, folder=project)
    assert (done.returncode, done.stderr) == (0, "")
    here = (sys.executable, "-m", "codegen", "backend-stubs", *options[:3], project / "here")
    assert run(*here, "--source-yaml", project / "backend.yaml", folder=REPOSITORY).returncode == 0
    made, expected = (
        {path.name: path.read_bytes() for path in (project / name).glob("[!.]*")}
        for name in ("out", "here")
    )
    assert made == expected


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--help"], "usage: python -m infini.codegen"),
        (["inspect", "add"], "1 operator"),
        (["torch", "--output-dir", "out"], "operators, "),
        (["platforms", "--output-dir", "out"], ""),
        (["hand-written"], "rms_norm"),
        (["registry", "--output-dir", "out"], "registry: 0 operators"),
        (["headers", "--output-dir", "out"], ""),
    ],
)
def test_each_command_finds_its_files(
    python: Path, tmp_path: Path, words: list[str], shown: str
) -> None:
    done = run(python, "-m", "infini.codegen", *words, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert shown in done.stdout


def test_the_headers_of_the_library_are_not_written_into_the_installation(
    python: Path, tmp_path: Path
) -> None:
    done = run(python, "-m", "infini.codegen", "headers", folder=tmp_path)
    assert done.returncode == 2
    assert "the following arguments are required: --output-dir" in done.stderr


def test_a_python_without_assertions_names_the_command(python: Path, tmp_path: Path) -> None:
    done = run(python, "-O", "-m", "infini.codegen", "inspect", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith("Run: python -m infini.codegen\n")


def configure(python: Path, project: Path, *options: object) -> tuple[int, str]:
    """Configure a project; return CMake's exit code and its messages on one line."""
    command = ("cmake", "-G", "Ninja", "-S", project, "-B", project / "build")
    done = run(*command, f"-DPython_EXECUTABLE={python}", *options, folder=project)
    return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)


@needs_cmake
def test_cmake_generates_and_configures_again(python: Path, project: Path) -> None:
    folder = run(python, "-m", "infini.codegen", "--cmake-dir", folder=project).stdout.strip()
    status, shown = configure(python, project, f"-DInfiniOpsCodegen_DIR={folder}")
    assert status == 0, shown
    assert "with 2 kernels" in shown
    rules = (project / "build" / "build.ninja").read_text()
    assert "RegisterPrivateUse1Fallback.cpp" in rules
    assert "libtorch_cpu.so" in rules

    again = ("ninja", "-C", project / "build", "build.ninja")
    assert "no work to do" in run(*again, folder=project).stdout
    source = project / "kernels.cc"
    source.write_text(SOURCE.replace("const at::Scalar&", "double"))
    done = run(*again, folder=project)
    assert done.returncode == 1
    assert "parameter 3 is 'double" in done.stdout + done.stderr
    source.write_text(
        SOURCE + "at::Tensor acme::Kernels::relu(const at::Tensor& x) { return x; }\n"
    )
    (project / "backend.yaml").write_text(DOCUMENT + "  - relu\n")
    done = run(*again, folder=project)
    assert done.returncode == 0, done.stdout
    assert "with 3 kernels" in done.stdout


@needs_cmake
def test_scikit_build_core_is_given_the_package(python: Path, project: Path) -> None:
    """It sets <name>_ROOT to the folder of each entry point of this group."""
    code = """
from importlib.metadata import entry_points
from importlib.resources import files
for each in entry_points(group="cmake.root"):
    print(f"-D{each.name}_ROOT={files(each.load())}")
"""
    options = run(python, "-c", code, folder=project).stdout.split()
    status, shown = configure(python, project, *options)
    assert status == 0, shown


@needs_cmake
def test_a_wrong_call_states_the_right_one(python: Path, project: Path) -> None:
    text = PROJECT.replace("YAML backend.yaml", "YML backend.yaml")
    (project / "CMakeLists.txt").write_text(text)
    package = REPOSITORY / "codegen" / "cmake"  # a checkout has it, too
    status, shown = configure(python, project, f"-DInfiniOpsCodegen_DIR={package}")
    assert status == 1
    assert "got 'acme;YML;backend.yaml;IMPL;kernels.cc'; expected a target that exists" in shown
