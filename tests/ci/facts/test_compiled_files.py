"""What the compiled files of a wheel need."""

from __future__ import annotations

import platform
import random
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from ci.facts.compiled_files import CompiledNeeds, compiled_needs, exported_symbols

SOURCE = """\
#include <math.h>
#include <stdlib.h>
double answer(const char *text) { return pow(atof(text), 0.5); }
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library that needs libm, and another that needs the first."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "a.c").write_text(SOURCE)
    (folder / "b.c").write_text("double answer(const char *); double two() { return answer(0); }")
    for arguments in (
        ["a.c", "-o", "liba.so.1", "-Wl,-soname,liba.so.1", "-lm"],
        ["b.c", "-o", "b.so", "-Wl,--no-as-needed", "liba.so.1"],
    ):
        subprocess.run(["cc", "-shared", "-fPIC", *arguments], cwd=folder, check=True)
    return folder


def wheel_of(folder: Path, files: Mapping[str, bytes]) -> Path:
    path = folder / "tiny-1-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_glibc_and_libraries_that_are_not_in_the_wheel(compiled: Path, tmp_path: Path) -> None:
    first, second = ((compiled / name).read_bytes() for name in ("liba.so.1", "b.so"))
    alone = compiled_needs(wheel_of(tmp_path, {"tiny/b.so": second}))
    assert "liba.so.1" in alone.libraries
    found = compiled_needs(
        wheel_of(tmp_path, {"tiny/liba.so.1": first, "tiny/b.so": second, "tiny/a.py": b"pass"})
    )
    assert "libm.so.6" in found.libraries
    assert "liba.so.1" not in found.libraries
    assert found.glibc is not None
    here = platform.libc_ver()[1]
    assert [*map(int, found.glibc.split("."))] <= [*map(int, here.split("."))]
    versions = subprocess.run(
        ["readelf", "-V", "liba.so.1"], cwd=compiled, capture_output=True, text=True, check=True
    ).stdout
    assert f"GLIBC_{found.glibc} " in versions


def test_a_pure_wheel_needs_nothing(tmp_path: Path) -> None:
    assert compiled_needs(wheel_of(tmp_path, {"tiny/a.py": b"pass"})) == CompiledNeeds()


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"no compiled file", bytes(4096)])
def test_a_damaged_file_needs_nothing(content: bytes, tmp_path: Path) -> None:
    assert compiled_needs(wheel_of(tmp_path, {"tiny/a.so": content})) == CompiledNeeds()
    path = tmp_path / "tiny-2-py3-none-any.whl"
    path.write_bytes(content)
    assert compiled_needs(path) == CompiledNeeds()


def test_damaged_bytes_are_no_error(compiled: Path, tmp_path: Path) -> None:
    content = (compiled / "liba.so.1").read_bytes()
    chance = random.Random(7)  # noqa: S311
    for _ in range(200):
        damaged = bytearray(content)
        for _ in range(chance.choice((1, 20, 400))):
            damaged[chance.randrange(len(damaged) if chance.random() < 0.5 else 64)] = (
                chance.randrange(256)
            )
        found = compiled_needs(wheel_of(tmp_path, {"tiny/a.so": bytes(damaged)}))
        assert all(it.isprintable() for it in found.libraries)
        exported_symbols(tmp_path / "tiny-1-py3-none-linux_x86_64.whl")


def test_exported_symbols(compiled: Path, tmp_path: Path) -> None:
    """What a library only uses, such as ``pow`` and ``answer``, it does not export."""
    first, second = ((compiled / name).read_bytes() for name in ("liba.so.1", "b.so"))
    assert exported_symbols(wheel_of(tmp_path, {"tiny/b.so": second})) == frozenset({"two"})
    both = wheel_of(tmp_path, {"tiny/liba.so.1": first, "tiny/b.so": second, "tiny/a.py": b""})
    assert exported_symbols(both) == frozenset({"answer", "two"})
    assert exported_symbols(wheel_of(tmp_path, {"tiny/a.py": b""})) == frozenset()


def test_only_compiled_files_count_for_the_limit(
    compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a wheel that is too large, nothing is known, rather than a part."""
    content = (compiled / "b.so").read_bytes()
    monkeypatch.setattr("ci.facts.compiled_files.LARGEST_COMPILED", len(content))
    wheel = wheel_of(tmp_path, {"tiny/weights.bin": 2 * content, "tiny/b.so": content})
    assert exported_symbols(wheel) == frozenset({"two"})
    wheel = wheel_of(tmp_path, {"tiny/b.so": content, "tiny/c.so": content})
    assert exported_symbols(wheel) is None
    assert compiled_needs(wheel) == CompiledNeeds()


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"no compiled file", bytes(4096)])
def test_what_a_damaged_file_exports_is_unknown(content: bytes, tmp_path: Path) -> None:
    assert exported_symbols(wheel_of(tmp_path, {"tiny/a.so": content})) is None


def test_what_a_file_without_sections_exports_is_unknown(compiled: Path, tmp_path: Path) -> None:
    content = bytearray((compiled / "b.so").read_bytes())
    content[0x28:0x30], content[0x3C:0x40] = bytes(8), bytes(4)  # where they begin, their number
    assert exported_symbols(wheel_of(tmp_path, {"tiny/b.so": bytes(content)})) is None
