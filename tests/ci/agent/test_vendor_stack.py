"""What the agent finds out about the vendor's stack: torch, the SDK, the bound libraries."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from ci.agent.machine import tool_facts
from ci.agent.vendor_stack import bound_libraries, sdk_versions
from ci.protocol.agent_files import SYMBOLS
from tests.ci.agent_job import Job

VERSION = """\
from typing import Optional
__all__ = ["git_version"]
__version__ = '2.13.0+cu130'
debug = False
cuda: Optional[str] = '13.0'
git_version = 'cf6a2fa'
hip: Optional[str] = None
raise SystemExit("this is not run")
"""
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    site = tmp_path / "site"
    site.mkdir()
    return site


def install(site: Path, name: str, *files: str, origin: object = None) -> None:
    metadata = site / f"{name}-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (metadata / "WHEEL").write_text("Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n")
    (metadata / "RECORD").write_text("".join(f"{it},,\n" for it in files))
    if origin is not None:
        (metadata / "direct_url.json").write_text(json.dumps(origin))


def variables(site: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(site)}


def test_the_build_of_torch_and_of_a_plug_in(site: Path) -> None:
    for name in ("torch", "torch-npu"):
        install(site, name)
        folder = site / name.replace("-", "_")
        folder.mkdir()
        (folder / "version.py").write_text(VERSION)
    builds = tool_facts(variables(site), site.parent / "project")["torch_builds"]
    build = {"version": "2.13.0+cu130", "cuda": "13.0", "git_version": "cf6a2fa"}
    assert isinstance(builds, dict)
    assert builds["torch"] == {**build, "tag": "cp311-cp311-linux_x86_64"}
    assert builds["torch-npu"] == builds["torch"]


def test_origins_of_what_pip_reported_and_of_what_had_an_address(site: Path) -> None:
    address = {"url": "https://example.org/b.zip", "archive_info": {"hash": "sha256=" + "b" * 64}}
    install(site, "A.b")
    install(site, "direct", origin=address)
    install(site, "folder", origin={"url": "file:///work", "dir_info": {}})
    install(site, "unknown")
    archive = {"url": "https://pypi.org/a.whl", "archive_info": {"hashes": {"sha256": "a" * 64}}}
    reports = []
    for number, version in enumerate(("1", "2")):
        installed = [{"metadata": {"name": "a-B", "version": version}, "download_info": archive}]
        report = site.parent / f"{number}.json"
        report.write_text(json.dumps({"install": installed}))
        reports.append(str(report))
    damaged = site.parent / "damaged.json"
    damaged.write_text("{")
    paths = [*reports, str(damaged), "/nowhere"]
    found = tool_facts(variables(site), site.parent / "project", reports=paths)["origins"]
    assert isinstance(found, dict)
    names = ("a-b", "direct", "folder", "unknown")
    assert {name: it for name, it in found.items() if name in names} == {
        "a-b": {"url": "https://pypi.org/a.whl", "sha256": "a" * 64, "direct": False},
        "direct": {"url": "https://example.org/b.zip", "sha256": "b" * 64, "direct": True},
    }


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://user:word@example.org/a.whl?token=word#sha256=1", "https://example.org/a.whl"),
        ("https://git:word@example.org/a.whl", "https://example.org/a.whl"),
        ("https://${USER}:${WORD}@example.org/a%40b.whl", "https://example.org/a%40b.whl"),
        ("ssh://git@example.org/a@b.git", "ssh://git@example.org/a@b.git"),
        ("word@example.org:a.git", "example.org:a.git"),
        ("file:///work/a@b.whl", "file:///work/a@b.whl"),
    ],
)
def test_an_origin_has_no_password(site: Path, url: str, kept: str) -> None:
    install(site, "one", origin={"url": url, "archive_info": {"hash": "sha256=" + "b" * 64}})
    install(site, "two", origin={"url": url, "vcs_info": {"vcs": "git", "commit_id": "c"}})
    facts = tool_facts(variables(site), site.parent / "project")
    origins, installed = facts["origins"], facts["installed_files"]
    assert isinstance(origins, dict)
    assert [origins[name]["url"] for name in ("one", "two")] == [kept, kept]
    assert isinstance(installed, list)
    assert kept.rpartition("/")[2].replace("%40", "@") in [it["name"] for it in installed]


def test_damaged_metadata_hide_only_their_own_distribution(site: Path) -> None:
    archive = {"url": "https://example.org/a.whl", "archive_info": {"hash": "sha256=" + "b" * 64}}
    for name in ("first", "torch", "torch-last"):
        install(site, name, origin=archive)
        folder = site / name.replace("-", "_")
        folder.mkdir()
        (folder / "version.py").write_text("cuda = '13.0'")
    project = site.parent / "project"
    (project / "tiny").mkdir()
    for name in ("__init__.py", "more.py"):
        (project / "tiny" / name).write_text("1")
    install(site, "tiny", "tiny/__init__.py", origin={"url": project.as_uri(), "dir_info": {}})
    install(site, "damaged")
    install(site, "unnamed")
    (site / "torch-1.dist-info" / "direct_url.json").write_text("{")
    (site / "torch" / "version.py").write_text("(")
    (site / "damaged-1.dist-info" / "METADATA").write_bytes(b"Name: damaged\nVersion: \xff")
    (site / "unnamed-1.dist-info" / "METADATA").write_bytes(b"")
    reported = {"metadata": {"name": "reported", "version": "1"}, "download_info": archive}
    install(site, "reported")
    report = site.parent / "report.json"
    report.write_text(json.dumps({"install": [3, {"metadata": {"name": ["a"]}}, reported]}))
    facts = tool_facts(variables(site), project, reports=[str(report)])
    origins, builds, installed = (
        facts[name] for name in ("origins", "torch_builds", "installed_files")
    )
    assert isinstance(origins, dict)
    assert {"first", "torch-last", "reported"} <= origins.keys()
    assert isinstance(builds, dict)
    assert builds["torch-last"]["cuda"] == "13.0"
    assert isinstance(installed, list)
    assert len([it for it in installed if it["name"] == "a.whl"]) == 2
    assert facts["unpackaged"] == ["tiny.more"]


def test_what_an_sdk_states_beside_its_compiler(tmp_path: Path) -> None:
    compiler = tmp_path / "cuda-13.0" / "bin" / "nvcc"
    compiler.parent.mkdir(parents=True)
    compiler.touch(mode=0o755)
    found = {"PATH": str(compiler.parent)}
    assert sdk_versions("nvcc", found) == {}
    text = {"cuda": {"name": "CUDA SDK", "version": "13.0.2"}, "other": 3}
    (tmp_path / "Version.txt").write_text("\nVersion: 3.2.1\nmore\n")
    assert sdk_versions("nvcc", found) == {"Version.txt": "Version: 3.2.1"}
    (tmp_path / "cuda-13.0" / "version.json").write_text(json.dumps(text))
    assert sdk_versions("nvcc", found) == {"cuda": "13.0.2"}
    assert sdk_versions(None, found) == sdk_versions("missing", found) == {}


def library(folder: Path, name: str, text: str, *options: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / name)]
    command += ["-x", "none", *options]
    subprocess.run(command, input=text, check=True, text=True)
    return folder / name


def bound(site: Path) -> dict[str, object]:
    results = site.parent / "results"
    results.mkdir(exist_ok=True)
    return bound_libraries(variables(site), site.parent / "project", results)


def test_a_library_is_bound_to_the_file_that_the_loader_finds(site: Path) -> None:
    vendor = library(site.parent / "vendor", "libvendor.so.1", "int launch(void) { return 1; }")
    text = """
    int launch(void); int perhaps(void) __attribute__((weak));
    #include <string.h>
    int call(char *a) { return launch() + (perhaps ? perhaps() : 0) + (int)strlen(a); }
    """
    built = library(site / "tiny", "_fast.so", text, str(vendor), f"-Wl,-rpath,{vendor.parent}")
    (site / "tiny" / "__init__.py").write_text("print('a line that is no JSON')\n")
    origin = {"url": (site.parent / "project").as_uri(), "dir_info": {}}
    install(site, "tiny", "tiny/__init__.py", f"tiny/{built.name}", origin=origin)
    found = bound(site)
    symbols = hashlib.sha256(b"launch").hexdigest()
    described = found["libvendor.so.1"]
    assert isinstance(described, dict)
    identity = described.pop("build_id", None) or described.pop("sha256")
    assert described == {"file": "libvendor.so.1", "symbols": 1, "symbols_sha256": symbols}
    assert len(identity) >= 32
    document = json.loads((site.parent / "results" / SYMBOLS).read_text())
    assert document["libvendor.so.1"] == ["launch"]
    assert any(it.startswith("strlen@GLIBC_2.") for it in document["libc.so.6"])


def test_a_preloaded_library_comes_first(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = "int launch(void) { return 1; }"
    vendor = library(site.parent / "vendor", "libvendor.so", definition)
    tracer = library(site.parent / "vendor", "libtracer.so", definition)
    text = "int launch(void); int call(void) { return launch(); }"
    library(site / "tiny", "_fast.so", text, str(vendor), f"-Wl,-rpath,{vendor.parent}")
    origin = {"url": (site.parent / "project").as_uri(), "dir_info": {}}
    install(site, "tiny", "tiny/_fast.so", origin=origin)
    assert "libvendor.so" in bound(site)
    monkeypatch.setenv("LD_PRELOAD", str(tracer))
    assert bound(site).keys() & {"libvendor.so", "libtracer.so"} == {"libtracer.so"}


def test_a_symbol_with_an_odd_name_hides_no_other(site: Path) -> None:
    vendor = library(site.parent / "vendor", "libvendor.so", "int a(void) { return 1; }")
    text = """
    int may_1(void) __attribute__((weak)); int a(void); int may_2(void) __attribute__((weak));
    int call(void) { return (may_1 ? may_1() : 0) + a() + (may_2 ? may_2() : 0); }
    """
    built = library(site / "tiny", "_fast.so", text, str(vendor), f"-Wl,-rpath,{vendor.parent}")
    built.write_bytes(built.read_bytes().replace(b"may_", b"may\xff"))
    origin = {"url": (site.parent / "project").as_uri(), "dir_info": {}}
    install(site, "tiny", "tiny/_fast.so", origin=origin)
    assert "libvendor.so" in bound(site)


def test_a_module_that_kills_its_process_claims_nothing(site: Path) -> None:
    text = "__attribute__((constructor)) static void die(void) { __builtin_trap(); }"
    library(site / "tiny", f"_fast{SUFFIX}", text)
    origin = {"url": (site.parent / "project").as_uri(), "dir_info": {}}
    install(site, "tiny", f"tiny/_fast{SUFFIX}", origin=origin)
    assert bound(site) == {}


def test_a_compiled_package_of_others_is_not_read(site: Path) -> None:
    library(site / "tiny", "_fast.so", "int missing(void); int call(void) { return missing(); }")
    install(site, "tiny", "tiny/_fast.so", origin={"url": "file:///elsewhere", "dir_info": {}})
    assert bound(site) == {}


@pytest.mark.parametrize("environment", [{}, {"PIP_REPORT": ""}])
def test_pip_reports_unless_a_stage_turns_it_off(
    site: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(site))
    job = Job(site.parent)
    metadata = "tiny_index-1.dist-info"
    wheel = job.workspace / "tiny_index-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(
            f"{metadata}/METADATA", "Metadata-Version: 2.1\nName: tiny-index\nVersion: 1\n"
        )
        file.writestr(f"{metadata}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        file.writestr(f"{metadata}/RECORD", "")
    pip = (sys.executable, "-m", "pip", "install", "--no-index", "--find-links=.")
    job.stage("install", *pip, f"--target={site}", "tiny-index", environment=environment)
    assert job.run() == 0, job.log("install")
    assert (site / metadata).is_dir()
    origin = job.environment()["origins"].get("tiny-index")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    expected = {"url": wheel.as_uri(), "sha256": digest, "direct": False}
    assert origin == (None if environment else expected)
