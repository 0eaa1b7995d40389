"""Stages of kind ``pytest``: logs, exit status, reruns.

The agent's pytest plugins are in ``status_plugin``, ``rerun_plugin`` and ``shard_plugin``.
``ci.facts.verdict`` later judges a crash from these files and events.
"""

from __future__ import annotations

import json
import os
import pkgutil
import re
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ContextManager, Iterable, Iterator, NamedTuple, Sequence

from ci.agent.artifacts import open_regular
from ci.agent.user import Handover, make_public
from ci.protocol.events import CommandEnd
from ci.protocol.job import StagePlan
from ci.protocol.pytest_report import SUBTEST, TEST, damaged_report, parse_report
from ci.protocol.pytest_status import is_pytest
from ci.protocol.stable_names import name_rules
from ci.util.files import remove_folder
from ci.util.lines import LONGEST_REPORT, lines_of_file

PACKAGE = "infini_ci_status"
METADATA = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1\n"
ENTRY_POINTS = f"[pytest11]\n{PACKAGE} = {PACKAGE}\n"
RERUN_PLUGIN = "infini_ci_rerun"
REPORT_LOG = "pytest_reportlog"  # the entry point of pytest-reportlog; a part of its module's name
NO_AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
AUTOLOAD_OFF = (NO_AUTOLOAD, "--disable-plugin-autoload")
_LOADS_LOG = re.compile(rf"-p[\s\"',=]*{REPORT_LOG}")
# The files that pytest searches for its options, and others with the option `-c`.
CONFIGURATIONS = (
    *("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini"),
    *("pyproject.toml", "tox.ini", "setup.cfg"),
)
CONFIGURATION_SUFFIXES = (".toml", ".ini", ".cfg")
LARGEST_CONFIGURATION = 1 << 20  # bytes
_WORDS = re.compile(r"[^\s=\"';&|()]+")  # of a command, also inside of a script
PLUGIN_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")

INTERRUPTED = 2  # pytest's exit status
# The code under test can write to the folder of statuses.
_RUN = re.compile(r"\d{1,10}-\d{1,20}-\d{1,10}\.(?P<kind>own|log|other)", re.ASCII)
MOST_RUNS = 1000  # runs of pytest in one stage
LONGEST_STATUS = 16  # bytes; a status has three digits
LARGEST_STATUS = 255  # exit statuses have 8 bits

MOST_TESTS = 200  # more failed tests mean a broken suite, not flaky tests
PHASES = (TEST, SUBTEST)


def log_arguments(stage: StagePlan, log: Path, workspace: Path) -> list[str]:
    """Return the arguments for a per-test log, which may need its plugin loaded.

    The stage has all its variables, and ``workspace`` is its folder.
    A stage whose pytest loads no plugins by itself may load that one under the name of its module.
    pytest stops if it gets the plugin under two names, so it is added only if the stage does not.
    """
    variables = stage.environment
    given = " ".join((*stage.command, *(variables.get(name, "") for name in PLUGIN_VARIABLES)))
    configured = given + "".join(_configurations(stage.command, workspace))
    is_off = variables.get(NO_AUTOLOAD, "") != "" or any(it in configured for it in AUTOLOAD_OFF)
    is_loaded = REPORT_LOG in given or _LOADS_LOG.search(configured)
    loaded = ("-p", REPORT_LOG) if is_off and not is_loaded else ()
    return [*loaded, f"--report-log={log}"]


def _configurations(command: Sequence[str], workspace: Path) -> Iterator[str]:
    """Read the files with options that pytest may find: its arguments, and beside or above them."""
    words = (word.partition("::")[0] for word in _WORDS.findall(" ".join(command)))
    named = []
    for path in (workspace / word for word in words):
        with suppress(OSError):  # such as a word that is too long for a name
            if workspace in path.parents and path.exists():
                named.append(path)
    folders = {workspace: None}
    for path in named:
        above = [path, *path.parents]
        folders.update(dict.fromkeys(above[: above.index(workspace)]))
    for file in (*named, *(folder / name for folder in folders for name in CONFIGURATIONS)):
        with suppress(OSError):
            if file.suffix in CONFIGURATION_SUFFIXES:
                with open_regular(file) as content:
                    yield content.read(LARGEST_CONFIGURATION).decode(errors="replace")


def python_path(*folders: str | None) -> str:
    """Return a ``PYTHONPATH`` of the folders that are not empty."""
    return os.pathsep.join(filter(None, folders))


@contextmanager
def plugin_folder(
    handover: Handover, name: str, module: str, written: str | None = None
) -> Iterator[Path]:
    """Create a folder with one of the agent's pytest plugins, and a folder that it writes to."""
    folder = make_public(Path(tempfile.mkdtemp(prefix=f"{name.replace('_', '-')}-")))
    try:
        (folder / f"{name}.py").write_bytes(pkgutil.get_data(__package__ or "", module) or b"")
        if written is not None:
            (folder / written).mkdir()
            if handover.user is not None:
                (folder / written).chmod(0o777)
        yield folder
    finally:
        with suppress(OSError):  # the code under test may have written to it
            remove_folder(folder)


def with_plugin(stage: StagePlan, name: str, folder: Path) -> StagePlan:
    """Return the stage, which has all its variables, whose pytest loads a plugin from a folder."""
    path = python_path(str(folder), stage.environment.get("PYTHONPATH"))
    variables = {**stage.environment, "PYTHONPATH": path}
    return replace(stage, command=(*stage.command, "-p", name), environment=variables)


# The exit code of a command such as `sh -c 'pytest; clean-up'` need not be pytest's, so a small
# pytest plugin records pytest's own exit status. The plugin is found through PYTHONPATH only. A
# wrapper that clears its environment runs without it, and pytest cannot fail to import it.


@contextmanager
def status_folder(stage: StagePlan, log: Path, handover: Handover) -> Iterator[Path | None]:
    """Create a folder with the plugin, for a stage that runs pytest in a wrapper."""
    folder: Path | None = None
    with ExitStack() as stack:
        # The exit code of a command that is pytest itself is pytest's.
        if not is_pytest(stage.command):
            with suppress(OSError):  # such as a full disk: the tests run without the plugin
                made = plugin_folder(handover, PACKAGE, "status_plugin.py", written="statuses")
                place = stack.enter_context(made)
                metadata = place / f"{PACKAGE}-1.dist-info"
                metadata.mkdir()
                (metadata / "METADATA").write_text(METADATA, encoding="utf-8")
                (metadata / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
                (place / "report-log").write_text(str(log.resolve()), encoding="utf-8")
                folder = place
        yield folder


class PytestRuns(NamedTuple):
    """The runs of pytest in a wrapper, as far as they are known."""

    pytest_status: int | None = None
    pytest_runs: int | None = None


def read_runs(folder: Path | None) -> PytestRuns:
    """Return what the plugin recorded of the runs of a stage, once it has ended.

    Of several, the exit status is that of a failed one. Next comes one that did not end: its
    results are in no log. A single one counts if it wrote the log, and not if its process is the
    stage's own: the exit code is then pytest's.
    """
    kinds = {}
    if folder is not None:
        with suppress(OSError), os.scandir(folder / "statuses") as entries:
            for entry in islice(entries, MOST_RUNS):
                if match := _RUN.fullmatch(entry.name):
                    kinds[entry.path] = match["kind"]
    statuses = [_status(Path(path)) for path in kinds]
    if len(kinds) == 1 and ("log" not in kinds.values() or statuses == [None]):
        return PytestRuns(pytest_runs=1)
    if not kinds:
        return PytestRuns()
    failed = [status for status in statuses if status]
    status = min(failed, default=INTERRUPTED if None in statuses else 0)
    return PytestRuns(status, len(kinds))


def _status(path: Path) -> int | None:
    """Read the exit status in a file; ``None``: not a valid file."""
    text = b""
    with suppress(OSError), open_regular(path, os.O_NOFOLLOW) as file:
        text = file.read(LONGEST_STATUS)
    return int(text) if text.isdigit() and int(text) <= LARGEST_STATUS else None


def selection_folder(handover: Handover) -> ContextManager[Path]:
    """Create a folder with the plugin that selects tests."""
    return plugin_folder(handover, RERUN_PLUGIN, "rerun_plugin.py")


def select_tests(
    stage: StagePlan,
    folder: Path,
    tests: Sequence[str],
    last: Iterable[str],
    folders: Sequence[str],
) -> StagePlan:
    """Return the stage that runs only these tests, and those of ``last`` at the end.

    ``folder`` has the plugin, and ``folders`` are those of ``run_folders``.
    """
    content = {"tests": [*tests], "last": sorted(last), "rules": name_rules(folders)}
    (folder / "tests.json").write_text(json.dumps(content), encoding="utf-8")
    return with_plugin(stage, RERUN_PLUGIN, folder)


def rerun_refusal(end: CommandEnd, failed: Sequence[str] | None) -> str | None:
    """Return why no test of a stage is run again; ``None``: its ``failed`` tests are."""
    if end.ended_early or failed is None:
        return "pytest did not finish"
    if not failed:
        return "pytest failed, but none of its tests did"
    if len(failed) > MOST_TESTS:
        return f"{len(failed)} tests failed; more than {MOST_TESTS} are not rerun"
    return None


def failed_tests(*logs: Path) -> list[str] | None:
    """Return the tests that failed or had an error; ``None``: a session did not finish."""
    failed: dict[str, None] = {}
    for log in logs:
        ended = False
        for record in _records(log, '"outcome": "failed"', '"SessionFinish"'):
            ended |= record["$report_type"] == "SessionFinish"
            if record["$report_type"] in PHASES and record["outcome"] == "failed":
                failed[record["nodeid"]] = None
        if not ended:
            return None
    return list(failed)


def unfinished_tests(log: Path) -> set[str]:
    """Return the tests of a per-test log that began and did not end."""
    begun: set[str] = set()
    ended: set[str] = set()
    for record in _records(log, '"TestReport"'):
        if record["$report_type"] == TEST:
            (begun if record["when"] == "setup" else ended).add(record["nodeid"])
    return begun - ended


def _records(log: Path, *marks: str) -> Iterator[dict[str, Any]]:
    """Read only the lines with one of the marks: a log of 17,000 tests has 30 MB."""
    if not log.is_file():
        return
    for line in lines_of_file(log, LONGEST_REPORT):
        if any(mark in line for mark in marks):
            try:
                record: dict[str, Any] | None = parse_report(line)
            except ValueError:  # truncated when the process died, too long, or not pytest's
                record = damaged_report(line)
            if record is not None:
                yield record
