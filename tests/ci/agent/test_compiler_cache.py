"""The compiler cache: the agent's variables, the tool's statistics, and the notes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from ci.agent.compiler_cache import (
    CompilerCache,
    hits_and_misses,
    parse_statistics,
    parse_statistics_log,
)
from ci.agent.user import Handover
from ci.engines.host.workfolder import host_cache_folder, remove_empty_cache
from ci.engines.job import is_cache_empty
from ci.facts.notes import cache_notes
from ci.facts.sentences import on_rows
from ci.model.plan import CachePlan
from ci.model.verdicts import Evidence
from ci.protocol.job import CacheJob

# Of ccache 4.7.5: a miss, a hit, a forced compilation, a link, a hit by the preprocessed source.
LOGGED = """\
# /workspace/t.cc
cache_miss
direct_cache_miss
local_storage_miss
local_storage_write
preprocessed_cache_miss
# /workspace/t.cc
direct_cache_hit
local_storage_hit
local_storage_read_hit
# /workspace/t.cc
local_storage_write
recache
# t.o
called_for_link
# /workspace/t.cc
local_storage_hit
preprocessed_cache_hit
# /workspace/bad.cc
compile_failed
direct_cache_miss
"""
PRINTED = """\
autoconf_test\t0
cache_miss\t1
called_for_link\t1
compile_failed\t1
direct_cache_hit\t1
files_in_cache\t2
preprocessed_cache_hit\t1
recache\t1
stats_updated_timestamp\t1795260983
"""
# Imitates a ccache before 4.4, which writes no log: its counters after one more hit.
OLD_CCACHE = """\
#!/bin/sh
case "$1" in
--version) echo "ccache version 3.7.7" ;;
*) cat "$CCACHE_DIR/counters" ;;
esac
"""


def test_log_of_a_run() -> None:
    assert hits_and_misses(parse_statistics_log(LOGGED.splitlines())) == (2, 2)


def test_printed_counters() -> None:
    assert hits_and_misses(parse_statistics(PRINTED)) == (2, 2)
    assert parse_statistics(PRINTED)["files_in_cache"] == 2


@pytest.mark.parametrize("text", ["", "\n", "error: what?\n", "cache_miss\tmany\n", "a\t1\tb\n"])
def test_nothing_is_made_of_other_text(text: str) -> None:
    assert hits_and_misses(parse_statistics(text)) == (0, 0)
    assert hits_and_misses(parse_statistics_log(text.splitlines())) == (0, 0)


class Tool:
    """A fake ccache on a PATH of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "cache"
        self.folder.mkdir()
        (folder / "ccache").write_text(OLD_CCACHE)
        (folder / "ccache").chmod(0o755)
        self.environment = {"PATH": os.pathsep.join([str(folder), os.defpath])}
        self.results = folder
        self.counters(PRINTED)

    def counters(self, text: str) -> None:
        (self.folder / "counters").write_text(text)

    def cache(
        self, environment: Mapping[str, str] = MappingProxyType({}), *, cold: bool = False
    ) -> CompilerCache:
        job = CacheJob(folder=str(self.folder), base="/workspace", cold=cold)
        variables = {**self.environment, **environment}
        cache = CompilerCache(job, variables, Handover(self.results, None))
        cache.begin()
        return cache


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "log", "expected"),
    [
        pytest.param(
            PRINTED,
            PRINTED.replace("direct_cache_hit\t1", "direct_cache_hit\t4"),
            None,
            {
                "tool": "ccache",
                "version": "3.7.7",
                "state": "warm",
                "copied": 0,
                "hits": 3,
                "misses": 0,
                "hit_rate": 1.0,
                "empty": False,
            },
            id="a version without a log is asked before and after",
        ),
        pytest.param(
            PRINTED,
            PRINTED.replace("direct_cache_hit\t1", "direct_cache_hit\t400"),
            LOGGED,
            {"hits": 2, "misses": 2, "state": "warm"},
            id="the log has only the run's own",
        ),
        # Also when it compiles something twice.
        pytest.param("files_in_cache\t0\n", "", LOGGED, {"state": "cold"}, id="the first run"),
        pytest.param(
            PRINTED, PRINTED, None, {"state": None, "hit_rate": None}, id="no compilation"
        ),
    ],
)
def test_facts(
    tool: Tool, before: str, after: str, log: str | None, expected: dict[str, object]
) -> None:
    tool.counters(before)
    cache = tool.cache()
    tool.counters(after)
    if log is not None:
        Path(cache.variables["CCACHE_STATSLOG"]).write_text(log)
    assert (facts := cache.facts())
    assert facts.items() >= expected.items()
    assert len(facts) == 8


def test_cache_that_no_run_has_used_is_empty(tool: Tool) -> None:
    (tool.folder / "counters").unlink()
    assert (facts := tool.cache().facts())
    assert (facts["state"], facts["empty"]) == (None, True)


def test_cache_without_the_tool_may_be_another_image_s(tool: Tool, tmp_path: Path) -> None:
    without = {"PATH": str(tmp_path / "nowhere")}
    assert tool.cache(without).facts() == {"tool": None, "state": None, "empty": False}
    (tool.folder / "counters").unlink()
    assert tool.cache(without).facts() == {"tool": None, "state": None, "empty": True}


def test_cold_run_replaces_what_is_there(tool: Tool) -> None:
    assert "CCACHE_RECACHE" not in tool.cache().variables
    assert tool.cache(cold=True).variables["CCACHE_RECACHE"] == "1"


def test_what_the_user_set_stays(tool: Tool) -> None:
    users = {"CMAKE_CXX_COMPILER_LAUNCHER": "sccache", "CMAKE_C_COMPILER_LAUNCHER": ""}
    variables = tool.cache(users).variables
    assert variables["CMAKE_CUDA_COMPILER_LAUNCHER"] == "ccache"
    assert not users.keys() & variables.keys()


def test_without_the_tool_nothing_is_set(tool: Tool, tmp_path: Path) -> None:
    assert tool.cache({"PATH": str(tmp_path / "empty")}).variables == {}


def test_folder_that_cannot_be_written_to(tool: Tool) -> None:
    job = CacheJob(folder="/proc/cache", base="/workspace", cold=False)
    cache = CompilerCache(job, tool.environment, Handover(tool.results, None))
    cache.begin()
    assert (cache.variables, cache.facts()) == ({}, None)


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        ('{"compiler_cache": {"empty": true}}', True),
        ('{"compiler_cache": {"empty": false}}', False),
        ('{"compiler_cache": {"empty": "true"}}', False),
        ('{"compiler_cache": null}', False),
        ("[" * 100_000, False),
        ("\udcff", False),
        (None, False),
    ],
)
def test_volume_that_goes_with_the_run(tmp_path: Path, text: str | None, empty: bool) -> None:
    if text is not None:
        (tmp_path / "environment.json").write_text(text, errors="surrogateescape")
    assert is_cache_empty(tmp_path) is empty


def test_a_pipe_in_place_of_the_environment_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "environment.json")
    assert not is_cache_empty(tmp_path)


def test_folder_that_goes_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = CachePlan(name="infini-ci-cache-tiny-cpu", cold=False)
    kept = host_cache_folder(cache.name) / "0"
    kept.mkdir(parents=True)
    remove_empty_cache(cache)
    assert kept.is_dir()
    kept.rmdir()
    remove_empty_cache(cache)
    assert not kept.parent.exists()
    remove_empty_cache(cache)  # which was there no more


@pytest.mark.parametrize(
    ("found", "notes"),
    [
        pytest.param({"state": "cold"}, [on_rows.cold_cache()], id="cold"),
        pytest.param({"state": "warm", "hit_rate": 0.968}, [on_rows.warm_cache(0.968)], id="warm"),
        pytest.param({"state": None, "hit_rate": None}, [], id="nothing compiled"),
        pytest.param({"tool": None, "state": None, "empty": True}, [], id="no ccache"),
        pytest.param(None, [], id="no cache"),
        pytest.param({"state": "warm", "hit_rate": "high"}, [], id="forged"),
    ],
)
def test_notes(found: object, notes: list[Evidence]) -> None:
    assert cache_notes({"compiler_cache": found}) == notes
