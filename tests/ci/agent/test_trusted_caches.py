"""Cached files of more trusted levels, copied into a cache that hostile runs have written to."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ci.agent import trusted_caches
from ci.agent.compiler_cache import CompilerCache
from ci.agent.trusted_caches import copy_missing
from ci.agent.user import Handover
from ci.protocol.job import CacheJob

HASH = "52utsaiv6nubi4bl0kjvlff3su9gbhc"
PLENTY = 1 << 30
BLOCK = 4096  # bytes that a small file takes on a disk


@pytest.fixture
def trusted(tmp_path: Path) -> Path:
    """A more trusted cache."""
    (tmp_path / "trusted").mkdir()
    return tmp_path / "trusted"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def add(cache: Path, name: str, text: str = "object", *, used: float = 1e9) -> Path:
    path = cache / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (used, used))
    return path


def copied(*caches: Path, own: Path, most_bytes: int = PLENTY) -> int:
    return copy_missing([str(cache) for cache in caches], str(own), most_bytes)


def names(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if not path.is_dir())


@pytest.mark.parametrize(
    "name",
    [
        "4/9/89d7ccc771953a54c8678abc5a35c7-23903.o",  # ccache 3.7
        "4/9/aa9f99094e645eca835e3e084ed8bb-206.manifest",
        "4/9/89d7ccc771953a54c8678abc5a35c7-23903.stderr",
        f"b/7/{HASH}R",  # ccache 4
        f"b/7/0/1/{HASH[2:]}M",
        f"b/7/{HASH}0W",
    ],
)
def test_missing_file_is_copied_with_its_time_of_use(trusted: Path, own: Path, name: str) -> None:
    add(trusted, name)
    assert copied(trusted, own=own) == 1
    assert names(own) == [name]
    assert (own / name).stat().st_mtime == 1e9
    assert copied(trusted, own=own) == 0


def test_other_files_are_not_copied(trusted: Path, own: Path) -> None:
    others = ("ccache.conf", "b/stats", "b/CACHEDIR.TAG", f"tmp/{HASH}R", f"b/{HASH}R.tmp.cpu.7")
    for name in others:
        add(trusted, name)
    assert copied(trusted, own=own) == 0
    assert names(own) == []


def test_own_file_stays(trusted: Path, own: Path) -> None:
    add(trusted, f"b/{HASH}M", "theirs", used=2e9)
    kept = add(own, f"b/{HASH}M", "own")
    assert copied(trusted, own=own) == 0
    assert kept.read_text() == "own"


def test_most_trusted_cache_comes_first(tmp_path: Path, own: Path) -> None:
    caches = [tmp_path / name for name in ("release", "branch", "missing")]
    for cache in caches[:2]:
        add(cache, f"b/{HASH}R", cache.name)
    assert copied(*caches, own=own) == 1
    assert (own / f"b/{HASH}R").read_text() == "release"


def test_latest_used_files_fill_the_room_that_remains(trusted: Path, own: Path) -> None:
    for used in (1, 2, 3, 4):
        add(trusted, f"b/{HASH}{used}W", used=used * 1e8)
    add(trusted, f"c/{HASH}1W")  # ccache limits each of the 16 folders
    add(own, f"b/{HASH}9W")
    assert copied(trusted, own=own, most_bytes=16 * 3 * BLOCK) == 3
    assert names(own) == [f"b/{HASH}{used}W" for used in (3, 4, 9)] + [f"c/{HASH}1W"]


def test_sparse_file_counts_with_its_whole_size(trusted: Path, own: Path) -> None:
    with add(trusted, f"b/{HASH}R").open("wb") as file:
        file.truncate(1 << 40)
    assert copied(trusted, own=own) == 0


def test_number_of_files_is_bounded(
    trusted: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trusted_caches, "MOST_FILES", 3)
    for number in range(9):
        add(trusted, f"b/{number}/{HASH}R")
    assert copied(trusted, own=own) == 3


def test_no_link_is_followed(trusted: Path, own: Path, tmp_path: Path) -> None:
    secret = add(tmp_path, f"elsewhere/{HASH}R", "secret")
    (trusted / "a").symlink_to(secret.parent)
    (trusted / "b").mkdir()
    (trusted / "b" / f"{HASH}R").symlink_to(secret)
    add(trusted, f"c/{HASH}M")
    add(trusted, f"d/{HASH}M")
    (own / "c").symlink_to(secret.parent)
    (own / "d").mkdir()
    (own / "d" / f"{HASH}M").symlink_to(tmp_path / "made")
    assert copied(trusted, own=own) == 0
    assert names(secret.parent) == [secret.name]
    assert not (tmp_path / "made").exists()
    own_link = tmp_path / "link"
    own_link.symlink_to(secret.parent)
    assert copied(trusted, own=own_link) == 0


def test_hostile_folders_end_nothing(trusted: Path, own: Path) -> None:
    for cache in (trusted, own):
        os.mkfifo(cache / "a")
        (cache / "b").mkdir()
        os.mkfifo(cache / "b" / f"{HASH}R")
        add(cache, f"c/{'/'.join('0' * 200)}/{cache.name}{HASH}R")
    add(trusted, f"c/{HASH}M")
    add(trusted, f"d/{HASH}M")
    assert copied(trusted, own=own) == 2


def test_copying_can_be_stopped(trusted: Path, own: Path) -> None:
    for number in range(3):
        add(trusted, f"b/{number}/{HASH}R")
    answers = iter([False, True])
    assert copy_missing([str(trusted)], str(own), PLENTY, lambda: next(answers)) == 1


def test_failed_copy_leaves_nothing(
    trusted: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(trusted, f"b/{HASH}R")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", fail)
    assert copied(trusted, own=own) == 0
    assert names(own) == []


@pytest.mark.skipif(shutil.which("ccache") is None, reason="this machine has no ccache")
def test_real_ccache_counts_the_copies_and_uses_them(tmp_path: Path, own: Path) -> None:
    (tmp_path / "a.c").write_text("int a;\n")

    def compiled(folder: Path, *trusted: Path, cold: bool = False) -> dict[str, object]:
        results = tmp_path / "results"
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir()
        job = CacheJob(str(folder), str(tmp_path), cold, tuple(map(str, trusted)))
        own_settings = ("CCACHE_", "CMAKE_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(own_settings)}
        cache = CompilerCache(job, kept, Handover(results, None))
        cache.begin()
        command = ["ccache", "gcc", "-c", "a.c", "-o", "a.o"]
        subprocess.run(command, cwd=tmp_path, env={**kept, **cache.variables}, check=True)
        facts = cache.facts()
        assert facts
        return facts

    release = tmp_path / "release"
    assert compiled(release)["state"] == "cold"
    cold = compiled(own, release, cold=True)
    assert (cold["state"], cold["copied"]) == ("cold", 0)
    shutil.rmtree(own)
    warm = compiled(own, release)
    assert (warm["state"], warm["hit_rate"]) == ("warm", 1.0)
    assert warm["copied"]
