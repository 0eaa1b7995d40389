"""The benchmarks of a stranger's project, and the stage that would measure them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from ci.plan.foreign.files import ProjectFiles
from ci.util.files import walk

DEPTH = 2  # levels below the project's folder
FOLDER = re.compile(r"bench(mark(s|ing)?)?|asv_bench(mark(s|ing)?)?|bench_\w+|perf(ormance)?", re.I)
# An argument of a test function, or a call in its body.
FIXTURE = re.compile(r"def test\w*\([^)]*\bbenchmark\b|@pytest\.mark\.benchmark")
PLUGINS = ("pytest-benchmark", "pytest-codspeed")  # have the same fixture
LINKED = re.compile(r"target_link_libraries\(\s*([\w.-]+)\b[^)]*\bbenchmark::benchmark", re.I)
TEST_FILE = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")
RESULTS, BUILD = "bench.json", "build/bench"
MOST_PROGRAMS = 200  # that are read
# asv would clone the repository that its configuration names, and refuse a branch that is not there
# or an environment that it cannot make. The copy names the sources and the Python that has them.
ASV_CONFIG = (
    "import os, sys, asv.util as u; c = u.load_json(sys.argv[1], js_comments=True);"
    ' c |= dict(repo=os.getcwd(), dvcs="git", branches=["HEAD"], environment_type="existing");'
    " u.write_json(sys.argv[2], c)"
)


@dataclass(frozen=True, kw_only=True)
class Benchmarks:
    """A stage for the benchmarks of a project."""

    origin: str
    command: str
    results: str
    """The path of ``benchmarks`` of the stage."""
    requirements: tuple[str, ...] = ()
    """The packages that the command needs."""


def find_benchmarks(files: ProjectFiles, packages: Collection[str]) -> Benchmarks | None:
    """Find the benchmarks of a project that declares ``packages``, if it has any."""
    folders, names = ["."], dict[str, list[str]]()
    for path, below, found in walk(files.folder, DEPTH):
        below[:] = sorted(it for it in below if not it.startswith("."))
        place = path.relative_to(files.folder).as_posix()
        names[place] = [it if place == "." else f"{place}/{it}" for it in sorted(found)]
        if place != "." and FOLDER.fullmatch(path.name):
            folders.append(place)
    listed = [file for folder in folders for file in names[folder]]
    everywhere = [file for some in names.values() for file in some]
    return (
        _asv(files, listed)
        or _with_pytest(files, listed, everywhere, packages)
        or _with_google_benchmark(files, listed)
    )


def _asv(files: ProjectFiles, listed: Sequence[str]) -> Benchmarks | None:
    for file in listed:
        path = PurePosixPath(file)
        if path.name == "asv.conf.json" and files.path(file):
            copy = (path.parent / "asv.ci.json").as_posix()
            asv, config = "python -m asv", f"--config {shlex.quote(copy)} --machine ci"
            # asv keeps no result without a commit, and the copy of the sources may have none.
            commit = "git -c user.name=ci -c user.email=ci commit -q --allow-empty -m ci"
            steps = (
                "git init -q .",
                commit,
                f"python -c {shlex.quote(ASV_CONFIG)} {shlex.quote(file)} {shlex.quote(copy)}",
                f"{asv} machine {config} --yes",
                f"{asv} run {config} --environment existing:python --set-commit-hash HEAD",
            )
            command = " && ".join(steps)
            folder = (path.parent / "results").as_posix()
            found = re.search(r'"results_dir"\s*:\s*"([\w./-]+)"', files.text(file))
            results = (path.parent / found[1]).as_posix() if found else folder
            return Benchmarks(
                origin=file,
                command=f"sh -c {shlex.quote(command)}",
                results=results,
                requirements=("asv",),
            )
    return None


def _with_pytest(
    files: ProjectFiles, listed: Sequence[str], everywhere: Sequence[str], packages: Collection[str]
) -> Benchmarks | None:
    plugin = next((it for it in PLUGINS if it in packages), None)
    programs = [it for it in listed if it.endswith(".py")]
    if plugin:  # anywhere among the tests
        programs += [it for it in everywhere if TEST_FILE.search(it) and it not in programs]
    for file in programs[:MOST_PROGRAMS]:
        if FIXTURE.search(files.text(file)):
            folder = PurePosixPath(file).parent
            is_own = FOLDER.fullmatch(folder.name) and TEST_FILE.search(file)
            paths = folder.as_posix() if is_own else file
            return Benchmarks(
                origin=f"{file} uses the fixture `benchmark`",
                command=f"python -m pytest {shlex.quote(paths)} --benchmark-json={RESULTS}",
                results=RESULTS,
                requirements=("pytest-benchmark",),
            )
    return None


def _with_google_benchmark(files: ProjectFiles, listed: Sequence[str]) -> Benchmarks | None:
    for file in listed:
        if PurePosixPath(file).name == "CMakeLists.txt" and (
            found := LINKED.search(files.text(file))
        ):
            target, folder = found[1], PurePosixPath(file).parent.as_posix()
            steps = (
                f"cmake -S {shlex.quote(folder)} -B {BUILD} -DCMAKE_BUILD_TYPE=Release",
                f"cmake --build {BUILD} --target {target}",
                f"{BUILD}/{target} --benchmark_out={RESULTS} --benchmark_out_format=json",
            )
            return Benchmarks(
                origin=f"{file}: {target} is linked with Google Benchmark",
                command=f"sh -c {shlex.quote(' && '.join(steps))}",
                results=RESULTS,
            )
    return None
