"""The compiler cache between runs: ccache, its settings, and its hits."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Callable

from ci.agent.machine import tool_output
from ci.agent.trusted_caches import copy_missing
from ci.agent.user import Handover
from ci.protocol.agent_files import CACHE_HITS, CACHE_LOG, CACHE_MISSES
from ci.protocol.job import CacheJob
from ci.util.lines import LONGEST_LOG_LINE, lines_of_file

LARGEST_GB = 5  # ccache's own default, set in case the image configures another
_COUNTER = re.compile(r"([^\t]+)\t([0-9]{1,15})")


class CompilerCache:
    """ccache for a job's stages; off if ccache is missing or the folder is not writable."""

    def __init__(
        self, job: CacheJob | None, environment: Mapping[str, str], handover: Handover
    ) -> None:
        self._job, self._handover = job, handover
        self.variables: dict[str, str] = {}  # for the stages, in addition to ``environment``
        self._tool = shutil.which("ccache", path=environment.get("PATH")) if job else None
        self._before: Counter[str] = Counter()
        self._cold = False
        self._copied = 0
        if job is None or self._tool is None:
            return
        with self._handover.access():
            with suppress(OSError):
                Path(job.folder).mkdir(parents=True, exist_ok=True)
            if not os.access(job.folder, os.W_OK, effective_ids=True):
                self._tool = None
                return
        wanted = {
            **{f"CMAKE_{name}_COMPILER_LAUNCHER": "ccache" for name in ("C", "CXX", "CUDA")},
            "CCACHE_DIR": job.folder,
            "CCACHE_MAXSIZE": f"{LARGEST_GB}G",
            # The folder of the sources may differ between runs.
            "CCACHE_BASEDIR": job.base,
            "CCACHE_NOHASHDIR": "1",
            "CCACHE_STATSLOG": str(self._handover.path(CACHE_LOG)),
            **({"CCACHE_RECACHE": "1"} if job.cold else {}),
        }
        self.variables = {name: wanted[name] for name in wanted if name not in environment}
        self._environment = {**environment, **self.variables}

    @property
    def log(self) -> Path | None:
        """The log of hits and misses that the stages write, unless the project has its own."""
        log = self.variables.get("CCACHE_STATSLOG")
        return Path(log) if log else None

    def begin(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Copy what more trusted caches have, and count; call it before the first stage.

        The copying ends when ``stopped`` returns true.
        """
        if self._job is None or self._tool is None:
            return
        # Not into a cache that nothing reads: a cold run's, or one that the project replaces.
        if not self._job.cold and "CCACHE_DIR" in self.variables:
            with self._handover.access():
                self._copied = copy_missing(
                    self._job.trusted, self._job.folder, LARGEST_GB * 10**9, stopped
                )
            if self._copied:
                self._printed("--cleanup")  # it also counts the files
        self._before = self._counters()
        self._cold = self._job.cold or not self._before["files_in_cache"]

    def facts(self) -> dict[str, object] | None:
        """Return the tool's version and hits; a state of ``None`` means no compilations.

        ``copied``: files that came from more trusted caches. ``empty``: the folder holds nothing
        yet, so the engine need not keep it.
        """
        with self._handover.access():
            folder = Path(self._job.folder) if self._job else None
            if folder is None or not folder.is_dir():
                return None
            empty = not any(folder.iterdir())
        if self._tool is None:
            return {"tool": None, "state": None, "empty": empty}
        # From 4.4 on, ccache writes a log for this run alone. The cache's own counters, all that
        # older versions have, also count other runs at the same time.
        self._handover.take(CACHE_LOG)
        log = self._handover.results / CACHE_LOG
        if log.exists():
            counted = parse_statistics_log(lines_of_file(log, LONGEST_LOG_LINE))
        else:
            counted = self._counters() - self._before
        hits, misses = hits_and_misses(counted)
        compiled = hits + misses
        state = "cold" if self._cold or not hits else "warm"
        return {
            "tool": "ccache",
            "version": self._printed("--version").partition("\n")[0].rpartition(" ")[2],
            "state": state if compiled else None,
            "hits": hits,
            "misses": misses,
            "hit_rate": hits / compiled if compiled else None,
            "copied": self._copied,
            "empty": empty,
        }

    def _counters(self) -> Counter[str]:
        return parse_statistics(self._printed("--print-stats"))

    def _printed(self, option: str) -> str:
        command, user = [str(self._tool), option], self._handover.user
        return tool_output(command, self._environment, user=user) or ""


def parse_statistics_log(lines: Iterable[str]) -> Counter[str]:
    """Count the known counters in ccache's log (CCACHE_STATSLOG): one per line.

    The code under test can write to it, and it has no limit.
    """
    return Counter(line for line in lines if line in (*CACHE_HITS, *CACHE_MISSES))


def parse_statistics(text: str) -> Counter[str]:
    """Read ``ccache --print-stats``: a counter and its value on every line."""
    found = (_COUNTER.fullmatch(line) for line in text.splitlines())
    return Counter({match[1]: int(match[2]) for match in found if match})


def hits_and_misses(counters: Mapping[str, int]) -> tuple[int, int]:
    """Return hits and misses of the cacheable compilations; a forced recompilation is a miss."""
    hits = sum(counters.get(name, 0) for name in CACHE_HITS)
    return hits, sum(counters.get(name, 0) for name in CACHE_MISSES)
