"""The facts of a build from its logs: complete, cut off, or of another build."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from ci.facts.build import (
    cached_units,
    compiler_flags,
    parse_ninja_log,
    read_build,
    read_logs,
    wall_seconds,
)
from ci.model.details import UnitKind
from ci.model.results import BuildResult

# As Ninja 1.13 wrote it for this library, most lines left out.
NINJA_LOG = """# ninja log v7
1\t6\t1795268312013940305\t/tmp/run-1/workspace/build/CMakeFiles/cmake.verify_globs\taeb22a2a
7\t1197\t1795268312019292576\tsrc/CMakeFiles/infini_ops.dir/core/dispatch.cc.o\tf35843b2
7\t1384\t1795268312019596298\tsrc/CMakeFiles/infini_ops.dir/core/operator.cc.o\tc654d941
3492\t11021\t1795268315503871164\tsrc/CMakeFiles/infini_ops.dir/__/generated/torch/kernels.cc.o\t6376
11023\t11341\t1795268323031871440\tsrc/libinfini_ops.so\t55aa34b2
11343\t11355\t1795268323351871451\tsrc/libnanobind-static.a\t3ec4254b
"""
INSTALL_LOG = """Processing /workspace
  Preparing metadata (pyproject.toml): started
Processing ./links/helper-1.0.tar.gz (from infini-ops==0.1.0)
Building wheels for collected packages: infini-ops, helper
  Running command Building wheel for infini-ops (pyproject.toml)
  -- Configuring done (0.6s)
  -- Generating done (0.2s)
    Created wheel for nested: filename=nested-1.0-py3-none-any.whl size=7 sha256=00
  Created wheel for infini-ops: filename=infini_ops-0.1.0-cp311-linux.whl size=1133561 sha256=12
  Stored in directory: /tmp/pip-ephem-wheel-cache-ou25y9yx/wheels/e2
  Created wheel for helper: filename=helper-1.0-py2.py3-none-any.whl size=867 sha256=a9
"""


def ninja_log(*lines: str, version: int = 7) -> str:
    return "\n".join([f"# ninja log v{version}", *(line.replace(" ", "\t") for line in lines), ""])


def archive(path: Path, files: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        folder = tarfile.TarInfo("generated")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def test_a_build_is_put_together(tmp_path: Path) -> None:
    (tmp_path / "ninja_log").write_text(NINJA_LOG)
    (tmp_path / "install.log").write_text(INSTALL_LOG)
    (tmp_path / "other.log").write_text(INSTALL_LOG)
    (tmp_path / "ccache.txt").write_text("# ../src/core/dispatch.cc\ndirect_cache_hit\n")
    archive(tmp_path / "generated.tar.gz", {"generated/abs.h": b"a\nb\n", "generated/x": b"\0\n"})
    commands = [{"command": "ccache g++ -O3 -c a.cc", "file": "a.cc"}]
    (tmp_path / "compile_commands.json").write_text(json.dumps(commands))
    build = read_build(tmp_path, stages=["generate", "install"])
    assert build is not None
    assert build.result == BuildResult(
        configure_s=0.8,
        compile_s=8.906,
        link_s=0.33,
        translation_units=3,
        wheel_bytes=1133561,
        generated_lines=2,
    )
    assert build.details.flags == ("-O3",)
    assert build.details.generated == {"generated/abs.h": 2}
    units = {unit.output: (unit.kind, unit.seconds, unit.cached) for unit in build.details.units}
    assert units["src/CMakeFiles/infini_ops.dir/core/dispatch.cc.o"] == ("compile", 1.19, True)
    assert units["src/CMakeFiles/infini_ops.dir/core/operator.cc.o"] == ("compile", 1.377, None)
    assert units["build/CMakeFiles/cmake.verify_globs"] == ("other", 0.005, None)
    assert next(iter(units)).endswith("kernels.cc.o")  # the most expensive one


def test_an_empty_folder_says_nothing(tmp_path: Path) -> None:
    assert read_build(tmp_path, stages=["install"]) is None


FOREIGN = {"text": b"\xff\xfe no\tlog\n1\t2\n", "nothing": b"", "json": b'{"a": [1, null]}'}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_foreign_files_say_nothing(tmp_path: Path, content: bytes) -> None:
    names = ("ninja_log", "ccache.txt", "compile_commands.json", "generated.tar.gz", "install.log")
    for name in names:
        (tmp_path / name).write_bytes(content)
    assert read_build(tmp_path, stages=["install"]) is None
    (tmp_path / "generated.tar.gz").write_bytes(gzip.compress(content))
    assert not (build := read_build(tmp_path)) or build.result.generated_lines == 0


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "ninja_log").mkdir()
    os.mkfifo(tmp_path / "generated.tar.gz")
    os.mkfifo(tmp_path / "install.log")
    (tmp_path / "compile_commands.json").symlink_to("nowhere")
    assert read_build(tmp_path, stages=["install"]) is None


@pytest.mark.parametrize("length", [10, 300, 320])
def test_a_part_of_an_archive_counts_for_nothing(tmp_path: Path, length: int) -> None:
    # The remains of a killed agent's log would look as if the sources had shrunk.
    path = tmp_path / "generated.tar.gz"
    archive(path, {f"generated/{n}.h": os.urandom(50) + b"\n" for n in range(5)})
    path.write_bytes(path.read_bytes()[:length])
    assert read_build(tmp_path) is None


# Ninja


def test_a_log_that_was_cut_off_is_read_as_far_as_it_goes() -> None:
    for length in range(len(NINJA_LOG)):
        parse_ninja_log(NINJA_LOG[:length])
    cut = NINJA_LOG.index("\tsrc/libnanobind")
    assert len(parse_ninja_log(NINJA_LOG[:cut])) == 5


@pytest.mark.parametrize(("version", "known"), [(4, 0), (5, 1), (6, 1), (7, 1), (8, 0)])
def test_versions_of_the_log(version: int, known: int) -> None:
    assert len(parse_ninja_log(ninja_log("0 9 0 a.o ff", version=version))) == known


ODD_LINES = (
    "9 0 0 a.o ff",
    "-1 9 0 a.o ff",
    "x 9 0 a.o ff",
    "0 9 0  ff",
    f"0 {'9' * 5000} 0 a.o f",
)


@pytest.mark.parametrize("line", ODD_LINES, ids=range(len(ODD_LINES)))
def test_lines_that_make_no_sense_are_left_out(line: str) -> None:
    assert not parse_ninja_log(ninja_log(line))


def test_outputs_of_one_command_are_one_unit() -> None:
    commands = parse_ninja_log(
        ninja_log("0 9 0 a.dwo ff", "0 9 0 a.cc.o ff", "0 9 0 b.cc.o ee", "9 12 0 t.h 1")
    )
    assert [(c.output, c.kind) for c in commands] == [
        ("a.cc.o", UnitKind.COMPILE),
        ("b.cc.o", UnitKind.COMPILE),
        ("t.h", UnitKind.OTHER),
    ]


def test_not_more_commands_are_read_than_a_build_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ci.facts.build.MOST_COMMANDS", 3)
    log = ninja_log(*(f"0 9 0 {number}.o {number}" for number in range(9)))
    assert [command.output for command in parse_ninja_log(log)] == ["0.o", "1.o", "2.o"]


def test_what_was_built_twice_counts_as_it_was_built_last() -> None:
    log = ninja_log("0 4000 0 a.o a", "0 9000 0 b.o b", "0 1000 0 a.o a2", "1000 2000 0 x.so x")
    commands = parse_ninja_log(log)
    assert {c.output: c.seconds for c in commands} == {"a.o": 1.0, "b.o": 9.0, "x.so": 1.0}
    assert wall_seconds(commands, UnitKind.COMPILE) == 10.0  # of two invocations
    assert wall_seconds(commands, UnitKind.OTHER) is None


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        (["0 1000", "500 2000"], 2.0),
        (["0 3000", "1000 2000", "2500 2600"], 3.0),
        (["0 1000", "5000 6000"], 2.0),
        (["0 0"], 0.0),
    ],
)
def test_wall_seconds_are_those_in_which_something_ran(spans: list[str], seconds: float) -> None:
    lines = sorted(spans, key=lambda span: int(span.split()[1]))
    log = ninja_log(*(f"{span} 0 {n}.o {n}" for n, span in enumerate(lines)))
    assert wall_seconds(parse_ninja_log(log), UnitKind.COMPILE) == seconds


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ("CMakeFiles/ops.dir/cuda/add.cu.o", "compile"),
        ("x/add.obj", "compile"),
        ("k.cubin", "compile"),
        ("CMakeFiles/ops.dir/cmake_pch.hxx.gch", "compile"),
        ("CMakeFiles/ops.dir/cmake_device_link.o", "link"),
        ("lib/libops.so.1.2", "link"),
        ("_core.cpython-311-x86_64-linux-gnu.so", "link"),
        ("libops.a", "link"),
        ("bin/benchmark", "link"),
        ("generated/table.cc", "other"),
        ("CMakeFiles/stamp", "other"),
        ("build.ninja", "other"),
    ],
)
def test_kinds_of_commands(output: str, kind: str) -> None:
    [command] = parse_ninja_log(ninja_log(f"0 9 0 {output} ff"))
    assert command.kind == kind


# ccache


def hits_of(log: str, *outputs: str) -> list[bool | None]:
    commands = parse_ninja_log(ninja_log(*(f"0 {n} 0 {o} {n}" for n, o in enumerate(outputs))))
    cached = cached_units(log, commands)
    return [cached.get(command.output) for command in commands]


def test_what_the_cache_had() -> None:
    log = (
        "# src.cxx\ndirect_cache_hit\n# ../src/core/a.cc\ncache_miss\ndirect_cache_miss\n"
        "# ../src/core/b.cc\npreprocessed_cache_hit\n# generated/c.cc\nrecache\n"
        "# src/CMakeFiles/x.dir/Unity/unity_0.cxx\ndirect_cache_hit\n"
    )
    folder = "src/CMakeFiles/x.dir/"
    names = ("core/a.cc.o", "core/b.cc.o", "__/generated/c.cc.o", "Unity/unity_0.cxx.o", "d.cc.o")
    found = hits_of(log, *(folder + name for name in names), "libx.so")
    assert found == [False, True, False, True, None, None]


def test_files_of_one_name_are_distinguished_by_their_folders() -> None:
    log = "# ../a/main.cc\ndirect_cache_hit\n# ../b/main.cc\ncache_miss\n"
    outputs = ("a/CMakeFiles/x.dir/main.cc.o", "b/CMakeFiles/y.dir/main.cc.o")
    assert hits_of(log, *outputs, "CMakeFiles/z.dir/main.cc.o") == [True, False, None]


@pytest.mark.parametrize(("second", "known"), [("direct_cache_hit", True), ("cache_miss", None)])
def test_a_source_of_two_targets_is_known_where_both_are_alike(
    second: str, known: bool | None
) -> None:
    log = f"# ../a.cc\ncache_miss\n# ../a.cc\ndirect_cache_hit\n# ../a.cc\n{second}\n"
    assert hits_of(log, "CMakeFiles/x.dir/a.cc.o", "CMakeFiles/y.dir/a.cc.o") == [known, known]


# Logs


def test_several_configurations_add_up() -> None:
    lines = ["-- Configuring done (1.5s)\n", "-- Generating done (0.25s)\n"]
    lines += [
        "  -- Configuring done (2.0s)\n",
        "-- Configuring done\n",
        "x -- Generating done (9s)",
    ]
    assert read_logs(lines) == (3.75, None)


@pytest.mark.parametrize(
    "source", ["./dist/own-1.0.tar.gz", "own-1.0-py3-none-any.whl (from x==1)", "/w/own.zip"]
)
def test_a_wheel_of_what_is_no_folder_is_not_the_project_s(source: str) -> None:
    created = "  Created wheel for own: filename=o.whl size=9 sha256=0\n"
    assert read_logs([f"Processing {source}\n", created]) == (None, None)


def test_impossible_numbers_are_ignored() -> None:
    lines = [f"-- Configuring done ({'9' * 400}.0s)\n", "Processing /w\n"]
    lines += [f"  Created wheel for own: filename=own.whl size={'9' * 5000} sha256=0\n"]
    assert read_logs(lines) == (None, None)


# Flags


def test_flags_are_without_what_is_of_one_build() -> None:
    command = (
        "/usr/bin/ccache /usr/bin/g++ -DROOT=/tmp/run-7/workspace -DNDEBUG -I/tmp/x -I inc -isystem"
        " /opt/torch/include -O3 -std=c++17 -x cu -arch sm_90 -Xcompiler -fPIC"
        " --cuda-path=/usr/local/cuda-13.0 -include pch.h -MD -MT a.o -MF a.o.d -o a.o -c src/a.cc"
    )
    entries = [{"command": command}, {"arguments": ["cc", "-O3", '-DX="/a/b"', "a.c"]}, 7, {}]
    expected = ["--cuda-path=cuda-13.0", "-DNDEBUG", "-DROOT=workspace", '-DX="b"', "-O3"]
    expected += ["-Xcompiler", "-arch sm_90", "-fPIC", "-std=c++17", "-x cu"]
    assert list(compiler_flags(json.dumps(entries))) == expected


@pytest.mark.parametrize("text", [None, "", "{}", "[[]]", '[{"command": 7}]', "[" * 100_000])
def test_what_is_no_list_of_commands_has_no_flags(text: str | None) -> None:
    assert compiler_flags(text) == ()


def test_quoted_flags_are_words() -> None:
    entries = [{"command": "g++ '-DNAME=\"a b\"' -O2 -c a.cc"}, {"command": "g++ 'no end"}]
    assert compiler_flags(json.dumps(entries)) == ('-DNAME="a b"', "-O2")
