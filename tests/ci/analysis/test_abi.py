"""What abidiff reports of the compiled files of two wheels."""

from __future__ import annotations

import json
import os
import random
import shutil
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from ci import cli
from ci.analysis.abi import AbiVerdict, FileAbi, compare_abi
from ci.errors import ExitCode
from ci.facts.exported_symbols import WheelPair
from tests.ci.kept_wheels import compiled, kept, wheel_of
from tests.ci.stored_history import Project, result

FIRST = """
struct point { int x; };
int read(struct point *it) { return it->x; }
int gone(void) { return 0; }
int level = 1;
"""
NEXT = """
struct point { long id; int x; };
int read(struct point *it) { return it->x; }
int more(void) { return 0; }
int level[4] = {1};
"""
needs_abidiff = pytest.mark.skipif(
    shutil.which("abidiff") is None, reason="this machine has no abidiff"
)


@dataclass(frozen=True, kw_only=True)
class Wheels:
    """Makes wheels, and compares them."""

    folder: Path

    def make(self, version: int, text: str, *options: str, member: str = "tiny.so") -> Path:
        path = self.folder / f"tiny-{version}-py3-none-any.whl"
        return wheel_of(path, compiled(self.folder, text, *options), member)

    def pair(self, *sides: str, options: tuple[str, ...] = ("-g",)) -> WheelPair:
        before, after = (self.make(it, text, *options) for it, text in enumerate(sides, 1))
        return WheelPair(name=after.name, before=before, after=after)

    def only_file(self, *sides: str, options: tuple[str, ...] = ("-g",)) -> FileAbi:
        found = compare_abi(self.pair(*sides, options=options))
        assert found is not None
        assert found.gap is None
        [file] = found.files
        return file


@pytest.fixture
def wheels(tmp_path: Path) -> Wheels:
    return Wheels(folder=tmp_path)


@needs_abidiff
def test_types_with_debug_information(wheels: Wheels) -> None:
    found = wheels.only_file(FIRST, NEXT)
    assert found.verdict is AbiVerdict.INCOMPATIBLE
    assert found.has_types
    assert str(found) == (
        "tiny.so: incompatible: 1 function removed, 1 function changed, 1 function added,"
        " 1 variable changed"
    )
    assert "type size changed from 32 to 128 (in bits)" in found.report


@needs_abidiff
def test_only_symbols_without_debug_information(wheels: Wheels) -> None:
    """The changed type of ``read`` is not seen, and this is said."""
    pair = wheels.pair(FIRST, NEXT, options=())
    found = compare_abi(pair)
    assert found is not None
    assert [*found.lines()] == [
        f"{pair.name}: ABI of tiny.so: incompatible: 1 function removed, 1 function added",
        f"{pair.name}: without debug information, abidiff compares symbols, but no types: tiny.so",
    ]
    assert [it.has_types for it in found.files] == [False]


@needs_abidiff
@pytest.mark.parametrize(
    ("before", "after", "verdict", "needs_review"),
    [
        ("int a;", "int a; int b;", AbiVerdict.CHANGED, False),
        ("int a(int x) { return x; }", "long a(long x) { return x; }", AbiVerdict.CHANGED, True),
        ("int a; int b;", "int a;", AbiVerdict.INCOMPATIBLE, False),
        ("int a;", "int a; /* again */", AbiVerdict.UNCHANGED, False),
    ],
)
def test_verdicts(
    wheels: Wheels, before: str, after: str, verdict: AbiVerdict, *, needs_review: bool
) -> None:
    found = wheels.only_file(before, after)
    assert (found.verdict, found.needs_review) == (verdict, needs_review)


@needs_abidiff
def test_another_soname(wheels: Wheels) -> None:
    """It counts as no function and no variable: the line is abidiff's own."""
    before, after = (
        wheels.make(it, "int a;", "-g", f"-Wl,-soname,libtiny.so.{it}") for it in (1, 2)
    )
    found = compare_abi(WheelPair(name="tiny", before=before, after=after))
    assert found is not None
    [file] = found.files
    assert file.verdict is AbiVerdict.INCOMPATIBLE
    assert "SONAME changed" in str(file)


@needs_abidiff
@pytest.mark.parametrize(
    ("before", "after", "is_one"),
    [
        ("tiny/_core.cpython-311-x86_64-linux-gnu.so", "tiny/_core.abi3.so", True),
        ("tiny/libtiny.so.1.2", "tiny/libtiny.so.1.3", True),
        ("tiny.libs/libgomp-0a1b2c3d.so.1.0.0", "tiny.libs/libgomp-ffffffff.so.1.0.0", True),
        ("tiny/a.so", "tiny/b.so", False),
        ("tiny/a.so", "more/a.so", False),
        ("../../a.so", "a.so", False),
    ],
)
def test_files_of_one_library(wheels: Wheels, before: str, after: str, *, is_one: bool) -> None:
    first = wheels.make(1, "int a;", "-g", member=before)
    second = wheels.make(2, "int a; int b;", "-g", member=after)
    found = compare_abi(WheelPair(name="tiny", before=first, after=second))
    assert found is not None
    shown = {str(it) for it in found.files}
    if is_one:
        assert shown == {f"{after}: changed: 1 variable added"}
    else:
        expected = {f"{before}: incompatible: the file is gone"}
        assert shown == expected | {f"{after}: changed: the file is new"}


@needs_abidiff
def test_settings_of_the_user_are_not_read(
    wheels: Wheels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignored = tmp_path / "ignored"
    ignored.write_text("[suppress_function]\n  name = gone\n[suppress_type]\n  name = point\n")
    (tmp_path / ".abignore").symlink_to(ignored)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LIBABIGAIL_DEFAULT_USER_SUPPRESSION_FILE", str(ignored))
    assert wheels.only_file(FIRST, NEXT).changes["function removed"] == 1


@needs_abidiff
def test_damaged_files_are_no_error(wheels: Wheels) -> None:
    content = compiled(wheels.folder, FIRST, "-g")
    before = wheels.make(1, FIRST, "-g")
    chance = random.Random(7)  # noqa: S311
    for _ in range(25):
        damaged = bytearray(content)
        for _ in range(chance.choice((1, 20, 400))):
            damaged[chance.randrange(64, len(damaged))] = chance.randrange(256)
        after = wheel_of(wheels.folder / "damaged.whl", bytes(damaged))
        found = compare_abi(WheelPair(name="tiny", before=before, after=after))
        for file in found.files if found else ():
            assert str(wheels.folder) not in file.report


@needs_abidiff
def test_a_file_that_takes_too_long_is_unknown(
    wheels: Wheels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ci.analysis.abi.TIMEOUT_S", 0.0)
    found = wheels.only_file(FIRST, FIRST)
    assert found.verdict is AbiVerdict.UNKNOWN
    assert "exceeded its time limit" in str(found)
    pair = wheels.pair("int a;", "int a; int b;")
    code, text = compare(pair.before, pair.after, "--fail-on", "regression")
    assert code == ExitCode.USAGE
    assert f"{pair.name}: ABI of tiny.so: unknown: abidiff has no result" in text


@needs_abidiff
def test_a_file_that_takes_too_much_memory_is_unknown(
    wheels: Wheels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ci.analysis.abi.MOST_MEMORY", 1 << 20)
    found = wheels.only_file(FIRST, FIRST)
    assert found.verdict is AbiVerdict.UNKNOWN
    assert "abidiff ended with exit code" in str(found)


def test_without_abidiff_symbols_are_compared(
    wheels: Wheels, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = wheels.pair(FIRST, NEXT)
    monkeypatch.setenv("PATH", str(wheels.folder))
    code, text = compare(pair.before, pair.after)
    assert code == ExitCode.PASSED
    assert f"{pair.name}: 1 exported symbol removed, which breaks programs: gone; 1 added" in text
    assert f"{pair.name}: only symbols are compared: abidiff of Debian's package" in text


def test_wheels_without_compiled_files(tmp_path: Path) -> None:
    first, second = (wheel_of(tmp_path / f"{it}.whl", b"", "a.py") for it in "ab")
    assert compare_abi(WheelPair(name="tiny", before=first, after=second)) is None
    _, text = compare(first, second)
    assert "exported symbols unchanged" in text


# The command


def compare(*words: object) -> tuple[int, str]:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.main(["compare", *map(str, words)])
    return code, out.getvalue() + err.getvalue()


@needs_abidiff
def test_two_wheels_in_each_format(wheels: Wheels) -> None:
    pair = wheels.pair(FIRST, NEXT)
    code, text = compare(pair.before, pair.after)
    assert code == ExitCode.PASSED
    assert f"{pair.name}: ABI of tiny.so: incompatible: 1 function removed" in text
    assert "\nabidiff of tiny.so\n" in text
    assert "'long int id', at offset 0" in text
    _, page = compare(pair.before, pair.after, "--format", "markdown")
    assert "#### abidiff of tiny.so" in page
    _, document = compare(pair.before, pair.after, "--format", "json")
    found = json.loads(document)
    assert found["symbols"] == {"name": pair.name, "removed": ["gone"], "added": ["more"]}
    [file] = found["abi"]["files"]
    assert file["changes"]["variable changed"] == 1


@needs_abidiff
@pytest.mark.parametrize(
    ("before", "after", "fail_on", "code"),
    [
        (FIRST, NEXT, "regression", ExitCode.REGRESSION),
        ("int a;", "int a; int b;", "suspected", ExitCode.PASSED),
        ("int a(int x) {}", "long a(long x) {}", "suspected", ExitCode.REGRESSION),
        ("int a(int x) {}", "long a(long x) {}", "regression", ExitCode.PASSED),
    ],
)
def test_the_exit_code_of_two_wheels(
    wheels: Wheels, before: str, after: str, fail_on: str, code: ExitCode
) -> None:
    pair = wheels.pair(before, after)
    assert compare(pair.before, pair.after, "--fail-on", fail_on)[0] == code


def test_wrong_files(wheels: Wheels, tmp_path: Path) -> None:
    known = wheels.make(1, FIRST)
    code, text = compare("latest", known)
    assert code == ExitCode.USAGE
    assert f"got 'latest' and '{known}', expected two wheels" in text
    assert compare(known, tmp_path / "none.whl")[0] == ExitCode.USAGE
    damaged = tmp_path / "damaged.whl"
    damaged.write_bytes(os.urandom(100))
    code, text = compare(known, damaged, "--fail-on", "regression")
    assert code == ExitCode.USAGE
    assert "damaged.whl: it or the earlier wheel cannot be read" in text


@needs_abidiff
def test_the_wheels_of_two_runs(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    for number, text in enumerate((FIRST, NEXT)):
        run = project.results / f"run-{number:03}"
        wheel = kept(run, f"tiny-{number}-py3-none-any.whl", compiled(tmp_path, text, "-g"))
        project.run(project.commit(), result(distributions=(wheel,)))
    _, text = project.compare(*project.runs)
    assert "tiny-1-py3-none-any.whl: ABI of tiny.so: incompatible: 1 function removed" in text
    assert "\nabidiff of tiny.so\n" in text
    _, page = project.compare(*project.runs, "--format", "markdown")
    assert "#### abidiff of tiny.so" in page
    _, document = project.compare(*project.runs, "--format", "json")
    [platform] = json.loads(document)["platforms"]
    [wheel_abi] = platform["abi"]
    assert wheel_abi["files"][0]["verdict"] == "incompatible"
