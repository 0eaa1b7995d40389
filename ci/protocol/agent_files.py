"""The files of the agent in a platform's results, beside the logs of its stages."""

from __future__ import annotations

from ci.protocol.job import StagePlan

EVENTS = "events.jsonl"
ENGINE_EVENTS = "engine-events.jsonl"  # the same, as the engine received them
ENVIRONMENT = "environment.json"  # machine, tools, packages, devices
SYMBOLS = "symbols.json"  # that the project needs of each library
PIP_REPORT = "pip-report."  # begins the name of what pip reports of a stage
# The same of what made the environment, in its folder; the recipe of images has the names, too.
PIP_REPORT_OF_ENVIRONMENT = "pip-report.json"
PIP_REPORTS_OF_ENVIRONMENT = "pip-report*.json"
PYTEST_LOG = "pytest.jsonl"  # the per-test log, of pytest-reportlog
JUNIT = "junit.xml"
BENCHMARKS = "benchmarks-of."  # begins the name of the result file of a benchmark stage
CACHE_LOG = "ccache.txt"  # ccache's log of all compilations: sources, each before such lines
CACHE_HITS = ("direct_cache_hit", "preprocessed_cache_hit")
CACHE_MISSES = ("cache_miss", "recache")


def benchmark_file(stage: str) -> str:
    """Return the name of the results of a benchmark stage; an archive has ``.tar.gz`` added."""
    return f"{BENCHMARKS}{stage}.json"


def shard_file(name: str, shard: int) -> str:
    """Return the name of a shard's own file: ``pytest.shard-1.jsonl`` for ``pytest.jsonl``."""
    stem, _, suffix = name.rpartition(".")
    return f"{stem}.shard-{shard}.{suffix}"


def files_of(stage: StagePlan, name: str) -> list[str]:
    """Return the names of the files that the processes of a stage write instead of ``name``."""
    if stage.shards == 1:
        return [name]
    return [shard_file(name, shard) for shard in range(1, stage.shards + 1)]
