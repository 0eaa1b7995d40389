"""A cache of compilations between runs: ccache, where the stages find it, and what it had."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATISTICS = "ccache.txt"  # in the results: every compilation, and what came of it
LARGEST = "5G"
TIMEOUT_S = 60.0
HITS = ("direct_cache_hit", "preprocessed_cache_hit")


class CompilerCache:
    """ccache for a job's stages; without it, or without a folder to write to, nothing happens."""

    def __init__(
        self, job: dict[str, Any] | None, environment: Mapping[str, str], results: Path
    ) -> None:
        self.variables: dict[str, str] = {}  # what the stages get on top of ``environment``
        self._folder = Path(job["folder"]) if job else None
        self._tool = job and shutil.which("ccache", path=environment.get("PATH"))
        self._log = results / STATISTICS
        if job is None or self._tool is None or not _writable(job["folder"]):
            self._tool = None
            return
        wanted = _variables(job, self._log)
        self.variables = {name: wanted[name] for name in wanted if name not in environment}
        self._environment = {**environment, **self.variables}
        self._before = self._counters()
        self._cold = bool(job["cold"]) or not self._before["files_in_cache"]

    def facts(self) -> dict[str, object] | None:
        """Describe the tool and what it did; a state of None says that nothing was compiled.

        ``empty``: no run has put anything there yet, so that the engine need not keep it.
        """
        if self._folder is None or not self._folder.is_dir():
            return None
        empty = not any(self._folder.iterdir())
        if self._tool is None:
            return {"tool": None, "state": None, "empty": empty}
        hits, misses = hits_and_misses(self._counted())
        compiled = hits + misses
        state = "cold" if self._cold or not hits else "warm"
        return {
            "tool": "ccache",
            "version": self._output("--version").partition("\n")[0].rpartition(" ")[2],
            "state": state if compiled else None,
            "hits": hits,
            "misses": misses,
            "hit_rate": hits / compiled if compiled else None,
            "empty": empty,
        }

    def _counted(self) -> Counter[str]:
        """What happened in this run.

        The log that ccache (from 4.4 on) writes for one run has nothing of others that use the
        cache at the same time; the cache's own counters, the only ones of older versions, have.
        """
        if self._log.exists():
            return logged(self._log.read_text(encoding="utf-8", errors="replace"))
        return self._counters() - self._before

    def _counters(self) -> Counter[str]:
        return printed(self._output("--print-stats"))

    def _output(self, option: str) -> str:
        command = [str(self._tool), option]
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.decode(errors="replace")


def logged(text: str) -> Counter[str]:
    """Count what a log of ccache's (CCACHE_STATSLOG) says: a counter a line, files as comments."""
    return Counter(line for line in text.splitlines() if line and not line.startswith("#"))


def printed(text: str) -> Counter[str]:
    """Read ``ccache --print-stats``: a counter and its value on every line."""
    pairs = [line.split("\t") for line in text.splitlines()]
    return Counter(
        {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
    )


def hits_and_misses(counters: Mapping[str, int]) -> tuple[int, int]:
    """Of the compilations that can be cached; what was to be compiled anew was not found."""
    hits = sum(counters.get(name, 0) for name in HITS)
    return hits, counters.get("cache_miss", 0) + counters.get("recache", 0)


def _variables(job: dict[str, Any], log: Path) -> dict[str, str]:
    launchers = [f"CMAKE_{language}_COMPILER_LAUNCHER" for language in ("C", "CXX", "CUDA")]
    return {
        **dict.fromkeys(launchers, "ccache"),
        "CCACHE_DIR": job["folder"],
        "CCACHE_MAXSIZE": LARGEST,
        # The folder of the sources may be another one in every run.
        "CCACHE_BASEDIR": job["base"],
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_STATSLOG": str(log),
        **({"CCACHE_RECACHE": "1"} if job["cold"] else {}),
    }


def _writable(folder: str) -> bool:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
