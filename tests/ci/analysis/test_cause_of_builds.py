"""Why the cost of real builds changed: compiled by CMake and Ninja, read from their logs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from ci.agent.compiler_cache import hits_and_misses, parse_statistics_log
from ci.analysis.cause import explain
from ci.analysis.explanation import Contributor, Explanation
from ci.analysis.parts import BuildSide, CauseKind
from ci.facts.build import read_build
from ci.model.results import StageResult
from tests.ci.published import PUBLISHED, platform_result

SEARCHED = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def tool(name: str) -> str | None:
    return shutil.which(name, path=SEARCHED)


pytestmark = [
    pytest.mark.skipif(tool(name) is None, reason=f"{name} is not installed")
    for name in ("cmake", "ninja", "g++")
]

PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(toy CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/*.cc)
add_library(toy SHARED ${sources})
"""
# Instantiates size * size templates: 100 take g++ 12 about 0.3 s.
SOURCE = """
template <int A, int B> struct Paths {{
  static constexpr unsigned kCount = Paths<A - 1, B>::kCount + Paths<A, B - 1>::kCount;
}};
template <int A> struct Paths<A, 0> {{ static constexpr unsigned kCount = 1; }};
template <int B> struct Paths<0, B> {{ static constexpr unsigned kCount = 1; }};
template <> struct Paths<0, 0> {{ static constexpr unsigned kCount = 1; }};
unsigned {name}() {{ return Paths<{size}, {size}>::kCount; }}
"""
CHEAP, EXPENSIVE = 40, 130


@dataclass
class Project:
    """A project, which is built from nothing every time."""

    folder: Path
    builds: int = 0

    def write(self, name: str, size: int) -> None:
        path = self.folder / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCE.format(name=path.stem, size=size))

    def build(self, *options: str, cache: str | None = None) -> BuildSide:
        """Build it as a run would, with the compiler cache in a folder of that name."""
        self.builds += 1
        results, build = self.folder / f"results{self.builds}", self.folder / "build"
        results.mkdir()
        shutil.rmtree(build, ignore_errors=True)
        environment = {**os.environ, "PATH": SEARCHED}
        if cache:
            environment |= {
                "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
                "CCACHE_DIR": str(self.folder / cache),
                "CCACHE_BASEDIR": str(self.folder),
                "CCACHE_NOHASHDIR": "1",
                "CCACHE_STATSLOG": str(results / "ccache.txt"),
            }
        start = time.monotonic()
        for command in (
            ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", *options],
            ["ninja", "-C", "build", "-j", "2"],
        ):
            subprocess.run(
                command, cwd=self.folder, env=environment, check=True, capture_output=True
            )
        seconds = time.monotonic() - start
        shutil.copy(build / ".ninja_log", results / "ninja_log")
        shutil.copy(build / "compile_commands.json", results)
        return side(results, seconds)


def side(results: Path, seconds: float) -> BuildSide:
    built = read_build(results)
    assert built is not None
    facts: dict[str, object] = {}
    if (log := results / "ccache.txt").is_file():
        hits, misses = hits_and_misses(parse_statistics_log(log.read_text().splitlines()))
        facts["compiler_cache"] = {"state": "warm", "hit_rate": hits / (hits + misses)}
    stages = (StageResult(name="install", seconds=seconds, exit_code=0, in_total=True),)
    result = platform_result(
        "CPU", PUBLISHED[0][1:], stages=stages, build=built.result, environment=facts
    )
    return BuildSide(result=result, builds=(built.details,))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("toy"))
    (project.folder / "CMakeLists.txt").write_text(PROJECT)
    for number in range(5):
        project.write(f"core/op{number}.cc", CHEAP)
    return project


@pytest.fixture(scope="module")
def base(project: Project) -> BuildSide:
    return project.build()


def contributor(found: Explanation, kind: CauseKind) -> Contributor:
    [contributor] = [each for each in found.contributors if each.kind is kind]
    return contributor


def test_new_expensive_units(project: Project, base: BuildSide) -> None:
    project.write("attention/flash.cc", EXPENSIVE)
    project.write("attention/paged.cc", EXPENSIVE)
    try:
        after = project.build()
    finally:
        shutil.rmtree(project.folder / "src/attention")
    for measure in ("compile.wall_s", "install.wall_s"):
        added = contributor(explain(measure, base, after), CauseKind.ADDED)
        assert added.text.startswith("in 2 new units in src/attention (")
        assert sorted(added.names) == ["src/attention/flash.cc", "src/attention/paged.cc"]
        assert added.share is not None
        assert added.share > 0
    units = explain("compile.units", base, after)
    new_units = "2 new units in src/attention (flash.cc, paged.cc)"
    assert units.text == f"compile +2 units (+40 %), {new_units}"


def test_other_flags(project: Project, base: BuildSide) -> None:
    # Compiling may take the same time to the millisecond, a whole build does not.
    found = explain("install.wall_s", base, project.build("-DCMAKE_CXX_FLAGS=-O3 -g"))
    flags = contributor(found, CauseKind.FLAGS)
    assert flags.text == "compiler flags changed: added -O3, -g"
    assert found.text.endswith(f"; at the same time: {flags.text}")
    assert {CauseKind.ADDED, CauseKind.REMOVED}.isdisjoint(each.kind for each in found.contributors)


@pytest.mark.skipif(tool("ccache") is None, reason="ccache is not installed")
def test_a_compiler_cache_that_was_lost(project: Project) -> None:
    project.build(cache="cache")
    found = explain("compile.wall_s", project.build(cache="cache"), project.build(cache="empty"))
    lost = contributor(found, CauseKind.CACHE_LOST)
    assert lost.text == "in 5 units that came from the compiler cache before"
    assert lost.names == tuple(f"src/core/op{number}.cc" for number in range(5))
    rate = contributor(found, CauseKind.CACHE_RATE)
    assert rate.text == "cache hits fell from 100 % to 0 %"
