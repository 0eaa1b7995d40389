"""What images are made from, and why one is built: the recipe's files and an image's labels."""

from __future__ import annotations

import ast
import json
import os
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from docker.models.images import Image
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ci.engines.docker.images import (
    INPUTS_LABEL,
    image_labels,
    pinned_reference,
    reason_to_build,
)
from ci.model.plan import RunPlan
from ci.model.platforms import PLATFORMS
from ci.plan.config import DevicePolicy
from ci.plan.load import load_config
from ci.plan.project import RECIPE_FILES, load_project, plan_run
from ci.util.files import RECIPES
from ci.util.invocation import REPOSITORY

ACCELERATORS = [name for name in PLATFORMS if name != "cpu"]


def plan(folder: Path, platform: str, **environ: str) -> RunPlan:
    base = {f"INFINI_CI_BASE_IMAGE_{platform.upper()}": "base:1"}
    project = load_project(folder / "ci.yaml", {**base, **environ})
    results = folder / "results"
    [planned] = plan_run(project, [platform], run_id="run", source=folder, results=results)
    return planned


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    settings = "".join(f"  {name}: {{requirements: needs.txt}}\n" for name in PLATFORMS)
    (tmp_path / "ci.yaml").write_text(f"project: tiny\nplatforms:\n{settings}")
    (tmp_path / "needs.txt").write_text("pytest\n")
    return tmp_path


def test_a_platform_differs_from_another_by_one_file(folder: Path) -> None:
    common = {*RECIPE_FILES, "requirements-devices.txt"}
    for name in ACCELERATORS:
        own = set(plan(folder, name).needed_image.context) - common
        assert own == {f"platforms/{name}.sh", f"requirements-{name}.txt"}
    assert set(plan(folder, "cpu").needed_image.context) == {*RECIPE_FILES, "requirements-cpu.txt"}


FAILS_ONCE = 'echo "$1" >>tries; [ "$(wc -l <tries)" = 2 ]'


@pytest.mark.parametrize(("program", "code"), [("echo >>tries", 0), (FAILS_ONCE, 0), ("exit 3", 3)])
def test_what_fails_is_tried_once_more(tmp_path: Path, program: str, code: int) -> None:
    for name in ("sleep", "a program"):
        (tmp_path / name).write_text("#!/bin/sh\n" + (program if name != "sleep" else ""))
        (tmp_path / name).chmod(0o755)
    command: list[str | Path] = [RECIPES / "retry", tmp_path / "a program", "an argument"]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == code
    assert ("retry: trying once more in 5 s" in done.stderr) == (program != "echo >>tries")
    if program == FAILS_ONCE:
        assert (tmp_path / "tries").read_text() == 2 * "an argument\n"


def test_every_file_of_the_recipe_is_sent() -> None:
    by_hand = {"make-base-image", "start-engine"}
    files = {path.name for path in RECIPES.iterdir() if path.is_file()}
    assert {name for name in files if not name.startswith("requirements-")} == {
        *RECIPE_FILES,
        *by_hand,
    }


def test_this_project_is_configured_for_all_platforms() -> None:
    config = load_config(REPOSITORY / "ci.yaml")
    assert list(config.platforms) == list(PLATFORMS)
    for name in ACCELERATORS:
        options = config.platforms[name].environment["SKBUILD_CMAKE_DEFINE"]
        backends = "WITH_CUDA_KERNELS=ON;WITH_TRITON=ON;" if name == "nvidia" else ""
        assert options == f"WITH_CPU=ON;WITH_{name.upper()}=ON;{backends}AUTO_DETECT_DEVICES=OFF"
        assert config.platforms[name].requirements == "docker/requirements-vendor.txt"
        assert config.platforms[name].devices == DevicePolicy()


def test_the_vendors_packages_are_not_requested() -> None:
    lines = (RECIPES / "requirements-vendor.txt").read_text().splitlines()
    names = {line.partition("==")[0] for line in lines if not line.startswith("#")}
    assert not names & {"torch", "numpy", "triton"}


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_each_python_of_the_library_gets_one_version_of_each_package(python: str) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert SpecifierSet(project["requires-python"]).contains(python)
    lines = (RECIPES / "requirements-cpu.txt").read_text(encoding="utf-8").splitlines()
    stated = (line.partition("  #")[0] for line in lines if not line.startswith(("#", "-")))
    requirements = [Requirement(line) for line in stated]
    this = {"python_version": python}
    chosen = [each for each in requirements if not each.marker or each.marker.evaluate(this)]
    assert sorted(each.name for each in chosen) == sorted({each.name for each in requirements})
    [numpy] = [each for each in chosen if each.name == "numpy"]
    # NumPy 2.3 and later have Requires-Python: >=3.11.
    assert numpy.specifier.contains("2.2.6" if python == "3.10" else "2.4.6")


def test_all_pins_of_a_package_agree() -> None:
    """Those of images with each other, and with the groups of this project."""
    document = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    texts = [it for group in document["dependency-groups"].values() for it in group]
    for path in RECIPES.glob("requirements-*.txt"):
        texts += path.read_text(encoding="utf-8").splitlines()
    stated = (text.partition("  #")[0] for text in texts if isinstance(text, str))
    requirements = [Requirement(text) for text in stated if text and text[0] not in "#-"]
    pins = {
        (each.name, part.version)
        for each in requirements
        for part in each.specifier
        if part.operator == "==" and (each.marker is None or each.marker.evaluate())
    }
    assert ("packaging", "26.4") in pins
    wrong = [
        (str(each), version)
        for each in requirements
        for name, version in pins
        if name == each.name and not (each.marker or each.specifier.contains(version))
    ]
    assert wrong == []


UNLIKE = "no image here is like it: the most similar one differs in "


def labels(planned: RunPlan) -> dict[str, str]:
    return image_labels(planned, "base:1", "sha256:0")


@pytest.mark.parametrize(
    "text", [None, "", "{", "[" * 100_000, '{"a": NaN}', '{"a": 1}', "[1]", "null"]
)
def test_labels_that_another_program_wrote(folder: Path, text: str | None) -> None:
    planned = plan(folder, "nvidia")
    odd = {} if text is None else labels(planned) | {INPUTS_LABEL: text}
    for others in ([], [odd]):
        assert reason_to_build(planned, others) == "no image of platform nvidia yet"


def test_the_most_similar_image_is_compared_with(folder: Path) -> None:
    before = plan(folder, "nvidia")
    far = plan(folder, "nvidia", PIP_INDEX_URL="https://mirror.example/")
    (folder / "needs.txt").write_text("pytest>=9\n")
    now = plan(folder, "nvidia")
    reasons = [reason_to_build(now, map(labels, others)) for others in ([far, before], [far])]
    assert reasons == [
        f"{UNLIKE}requirements-nvidia.txt",
        f"{UNLIKE}argument PIP_INDEX_URL (none is needed), requirements-nvidia.txt",
    ]


def test_system_packages_are_a_reason_to_build(folder: Path) -> None:
    before = plan(folder, "nvidia")
    config = folder / "ci.yaml"
    config.write_text(config.read_text() + "system_packages: [less]\n")
    now = plan(folder, "nvidia")
    assert reason_to_build(now, [labels(before)]) == f"{UNLIKE}system-packages (it has none)"
    assert set(now.needed_image.context) == {*before.needed_image.context, "system-packages"}


INDEX = {"PIP_INDEX_URL": "https://a.example/"}


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        (INDEX, {"PIP_INDEX_URL": "https://b.example/"}, "argument PIP_INDEX_URL"),
        ({}, INDEX, "argument PIP_INDEX_URL (it has none)"),
        ({}, {"INFINI_CI_BASE_IMAGE_NVIDIA": "base:2"}, "base image (base:1, not base:2)"),
    ],
)
def test_what_changed(
    folder: Path, before: dict[str, str], now: dict[str, str], reason: str
) -> None:
    others = [labels(plan(folder, "nvidia", **before))]
    assert reason_to_build(plan(folder, "nvidia", **now), others) == f"{UNLIKE}{reason}"


def test_an_image_that_has_lost_its_name(folder: Path) -> None:
    planned = plan(folder, "nvidia")
    tag = planned.needed_image.tag
    assert reason_to_build(planned, [labels(planned)]) == f"no image is tagged {tag}"


def test_labels_hold_no_secrets(folder: Path) -> None:
    secret = "https://me:s3cret@index.example/"  # noqa: S105
    assert "s3cret" not in json.dumps(labels(plan(folder, "nvidia", PIP_INDEX_URL=secret)))


def test_a_foreign_recipe_does_not_get_our_entry_point(folder: Path) -> None:
    assert plan(folder, "cpu").needed_image.entry == ("/opt/recipe/enter",)
    (folder / "my.Dockerfile").write_text("FROM x\n")
    (folder / "ci.yaml").write_text("project: t\nplatforms:\n  cpu: {recipe: my.Dockerfile}\n")
    assert plan(folder, "cpu").needed_image.entry == ()


# The scripts, run as the image build runs them.


def package(site: Path, name: str, version: str) -> None:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def vendor_packages(*arguments: object, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", RECIPES / "vendor_packages.py", *map(str, arguments)],
        env={"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_folder_without_a_package_is_no_torch(tmp_path: Path) -> None:
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    assert vendor_packages("has-torch", path=tmp_path).returncode == 1
    (tmp_path / "torch" / "__init__.py").touch()
    assert vendor_packages("has-torch", path=tmp_path).stdout == f"{sys.executable}\n"


def test_constraints_keep_what_is_the_vendors(tmp_path: Path) -> None:
    for name, version in {
        "torch": "2.4.0",
        "torch_npu": "2.4.0.post2",
        "torchvision": "0.19.0",
        "triton-ascend": "3.0",
        "apex": "0.1+metax3.2",
        "numpy": "1.26.4",
        "pytest": "8.0.0",
        "Jinja2": "3.1.0",
    }.items():
        package(tmp_path, name, version)
    head, *constraints = vendor_packages("constraints", path=tmp_path).stdout.splitlines()
    assert head == f"# the packages of {sys.executable}, Python {platform.python_version()}"
    assert constraints == [
        "apex==0.1+metax3.2",
        "numpy<2",
        "torch==2.4.0",
        "torch_npu==2.4.0.post2",
        "torchvision==0.19.0",
        "triton-ascend==3.0",
    ]


# As pip does it for an isolated build: it removes what the folders of packages append to the path.
ISOLATED = """
import site, sys
before, known = len(sys.path), set()
for folder in site.getsitepackages():
    site.addsitedir(folder, known)
sys.path = [folder for folder in sys.path[:before] if folder not in sys.path[before:]]
"""


@pytest.mark.parametrize("sees_system", [False, True])
def test_an_environment_sees_what_the_vendors_sees(tmp_path: Path, sees_system: bool) -> None:
    """The vendor's Python is an environment, with or without the packages of its base."""

    def make(name: str, *options: str) -> Path:
        command = [sys.executable, "-m", "venv", "--without-pip", *options, str(tmp_path / name)]
        subprocess.run(command, check=True)
        return tmp_path / name / "bin" / "python"

    def path_of(python: Path, program: str = "import sys") -> list[str]:
        command = [str(python), "-P", "-c", f"{program}\nprint(*sys.path, sep='\\n')"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return list(dict.fromkeys(printed.splitlines()))  # of two, the first counts

    before = make("vendor", *(["--system-site-packages"] if sees_system else []))
    (tmp_path / "sdk").mkdir()
    [packages] = (tmp_path / "vendor" / "lib").glob("python*/site-packages")
    (packages / "sdk.pth").write_text(f"{tmp_path / 'sdk'}\n")
    library = path_of(before, ISOLATED)
    for name in ("first", "second"):  # the recipe of images has two, each linked to the one before
        python = make(name)
        link: list[str | Path] = [before, RECIPES / "vendor_packages.py", "link", tmp_path / name]
        subprocess.run(link, check=True)
        [own] = (tmp_path / name / "lib").glob("python*/site-packages")
        seen = [folder for folder in path_of(python) if folder != str(own)]
        assert seen == path_of(before)
        assert str(tmp_path / "sdk") in seen
        assert path_of(python, ISOLATED) == library
        before = python


def test_an_old_python_of_an_image_can_look_for_the_vendors() -> None:
    tree = ast.parse((RECIPES / "vendor_packages.py").read_text(), feature_version=(3, 6))
    at_once = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert not {"__future__", "importlib.metadata"} & {*at_once}


def test_a_package_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    package(tmp_path / "now", "torch", "2.5.0")
    (tmp_path / "constraints.txt").write_text("# a==b\nnumpy<2\ntorch==2.4.0+vendor\n")
    checked = vendor_packages("check", tmp_path / "constraints.txt", path=tmp_path / "now")
    assert checked.returncode == 1
    assert "the vendor's torch==2.4.0+vendor was replaced or shadowed" in checked.stderr
    package(tmp_path / "before", "torch", "2.4.0+vendor")
    checked = vendor_packages("check", tmp_path / "constraints.txt", path=tmp_path / "before")
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.fixture
def enter(tmp_path: Path) -> Path:
    """The entry point beside the file of a platform whose SDK is in a folder of this test."""
    (tmp_path / "sdk" / "bin").mkdir(parents=True)
    (tmp_path / "sdk" / "lib64").mkdir()
    (tmp_path / "sdk" / "set_env.sh").write_text("export OPP=opp\necho said\n")
    text = (RECIPES / "enter").read_text().replace("/opt/recipe", str(tmp_path))
    (tmp_path / "enter").write_text(text)
    (tmp_path / "platform.sh").write_text(
        f"vendor_script {tmp_path}/sdk/set_env.sh\nvendor_script /nowhere/set_env.sh\n"
        f"sdk_root SDK_HOME {tmp_path}/sdk\nsdk_root OTHER_HOME /nowhere\n"
    )
    return tmp_path / "enter"


def entered(enter: Path, **environ: str) -> dict[str, str]:
    """The environment of a command behind the entry point."""
    done = subprocess.run(
        ["/bin/bash", enter, "env"],
        env={"PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return {name: value for name, _, value in pairs if name not in ("PWD", "SHLVL", "_")}


def test_the_entry_point_names_the_sdk(enter: Path) -> None:
    sdk = enter.parent / "sdk"
    assert entered(enter) == {
        "PATH": f"/usr/bin:/bin:{sdk}/bin",
        "LD_LIBRARY_PATH": f"{sdk}/lib64",
        "SDK_HOME": str(sdk),
        "OPP": "opp",
    }


def test_what_the_base_image_says_of_its_sdk_stands(enter: Path, tmp_path: Path) -> None:
    sdk = enter.parent / "sdk"
    other = {"SDK_HOME": str(tmp_path / "another"), "PATH": f"{sdk}/bin:/usr/bin:/bin"}
    assert entered(enter, **other) == {**other, "OPP": "opp"}


@pytest.mark.parametrize(
    "recipe", sorted((RECIPES / "platforms").iterdir()), ids=lambda path: path.stem
)
def test_the_sdk_of_a_platform(enter: Path, recipe: Path) -> None:
    text = recipe.read_text()
    variables = re.findall(r"^sdk_root (\w+) ", text, re.MULTILINE)
    folder = re.search(r"^sdk_root \w+ /(\S+)$", text, re.MULTILINE)
    assert folder
    (enter.parent / "platform.sh").write_text(text.replace(" /", f" {enter.parent}/"))
    assert entered(enter) == {"PATH": "/usr/bin:/bin"}  # on a base that does not have it
    sdk = enter.parent / folder[1]
    sdk.mkdir(parents=True)
    assert entered(enter) == {"PATH": "/usr/bin:/bin", **dict.fromkeys(variables, str(sdk))}


@pytest.mark.parametrize(
    ("reference", "digests", "expected"),
    [
        ("debian:12", ["mirror/a@sha256:1", "debian@sha256:1"], "debian@sha256:1"),
        (
            "debian:12",
            ["a.example/debian@sha256:1", "docker.io/library/debian@sha256:1"],
            "docker.io/library/debian@sha256:1",
        ),
        ("nvidia/cuda:13.0", ["docker.io/nvidia/cuda@sha256:2"], "docker.io/nvidia/cuda@sha256:2"),
        (
            "a.example:5000/b",
            ["c/b@sha256:3", "a.example:5000/b@sha256:3"],
            "a.example:5000/b@sha256:3",
        ),
        ("debian:12", ["z/a@sha256:1", "b/a@sha256:1"], "b/a@sha256:1"),
        ("base:1", ["localhost/base@sha256:4"], None),
        ("base:1", [], None),
        ("base:1", None, None),
    ],
)
def test_the_digest_that_a_registry_has(
    reference: str, digests: list[str] | None, expected: str | None
) -> None:
    assert pinned_reference(Image(attrs={"RepoDigests": digests}), reference) == expected
