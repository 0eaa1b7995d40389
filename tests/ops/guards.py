"""What keeps one bad kernel from costing more than its own test, and every test honest.

A test runs in a worker process of pytest-xdist, which starts another one where that dies. A
dying worker leaves its last words in a file of the run: the signal and the Python stack. From
these the controlling process names the test and how it ended. Here are the hooks of both
processes; ``conftest`` adds them, ``quarantine`` and ``reasons`` are the rules they apply.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from names import TestName
from quarantine import Entry, Outcome, QuarantineError, load
from reasons import SkipReason, reason_of, skip_message

HANG_AFTER = 120  # seconds; the slowest test of the CPU takes 6
EXPECTED_HANG_AFTER = 10  # for a test whose quarantine entry says that it hangs
WORKER_DEATHS = 100  # with more of them, the device or the build is broken, not a kernel

NO_ANSWER = "the device no longer answers after this test"
NO_TRACEBACK = "killed from outside, or ended by a call of exit (no traceback)"

# Options with which somebody watches the tests, or none is run: no worker process then.
_WATCHED = ("usepdb", "trace", "collectonly", "showfixtures", "show_fixtures_per_test")
_SETUP_SHOWN = ("setuponly", "setupshow", "setupplan")
# Options that leave out a part of the suite.
_NARROWING = ("keyword", "markexpr", "deselect", "lf", "ignore", "ignore_glob", "slot")

# Frames of what runs the test are no part of the answer, nor are those of the interpreter, which
# faulthandler adds since Python 3.14.
_MACHINERY = re.compile(
    r'\bFile ".*/(_pytest|pluggy|pytest|xdist|execnet)/|\bFile "<|'
    r'Binary file "(.*/)?(lib)?python[^/"]*"'
)
_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("infini.ops")
    group.addoption(
        "--hang-after",
        type=float,
        default=HANG_AFTER,
        metavar="SECONDS",
        help=f"end a test and its worker process after this long; 0: never (default {HANG_AFTER})",
    )


def use_a_worker(config: pytest.Config) -> None:
    """Has the tests run in a worker process, where the command line says nothing about it.

    Called in ``pytest_cmdline_main``, before pytest-xdist reads the options.
    """
    if hasattr(config, "workerinput") or not config.pluginmanager.hasplugin("xdist"):
        return
    option = config.option
    watched = option.capture == "no" or any(
        getattr(option, name, False) for name in (*_WATCHED, *_SETUP_SHOWN)
    )
    if option.numprocesses is None and option.dist == "no" and not option.tx and not watched:
        option.numprocesses = 1
    if option.maxworkerrestart is None:
        # pytest-xdist's own default, four per worker, would let a handful of defects end the run.
        option.maxworkerrestart = str(WORKER_DEATHS)


def register(
    config: pytest.Config,
    *,
    entries: tuple[Entry, ...],
    folder: Path,
    properties: dict[str, Any],
    device_answers: Callable[[], bool],
) -> None:
    """Adds the hooks for the process that this is.

    Args:
        entries: the platform's quarantine.
        folder: of the suite, to tell whether all of it was collected.
        properties: what is recorded for a test that could not record it itself.
        device_answers: says whether the device still works; asked after a failure.
    """
    quarantine = Quarantine(entries)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(QuarantineReport(config, quarantine, folder))
    if config.getoption("dist", "no") != "no" and not config.option.collectonly:
        config.pluginmanager.register(DeathReports(config, quarantine, properties))
    else:
        config.pluginmanager.register(TestGuards(config, quarantine, device_answers))


def platform_quarantine(path: Path, platform: str, platforms: Iterable[str]) -> tuple[Entry, ...]:
    """Reads the quarantine of a platform; what is wrong in the file is a usage error."""
    try:
        return load(path, tuple(platforms)).get(platform, ())
    except QuarantineError as error:
        raise pytest.UsageError(str(error)) from error


class Quarantine:
    """The entries of the platform that the tests run on."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self.entry_of = cache(self._entry_of)

    def _entry_of(self, node_id: str) -> Entry | None:
        test = TestName(node_id)
        return next((entry for entry in self.entries if entry.matches(test)), None)

    def hang_limit(self, config: pytest.Config, node_id: str) -> float:
        """Returns the seconds that a test may take; 0: any."""
        limit: float = config.getoption("hang_after")
        entry = self.entry_of(node_id)
        expected = entry is not None and entry.outcome is Outcome.HANGS
        return min(limit, EXPECTED_HANG_AFTER) if expected else limit


class TestGuards:
    """The hooks of the process that runs tests: a worker, or the only process there is."""

    __test__ = False  # not a test class, whatever its name

    def __init__(
        self, config: pytest.Config, quarantine: Quarantine, device_answers: Callable[[], bool]
    ) -> None:
        self._config = config
        self._quarantine = quarantine
        self._device_answers = device_answers
        self._last_words: Any = None

    def pytest_sessionstart(self) -> None:
        """Opens the file of the last words; pytest's own faulthandler plug-in came before."""
        workerinput = getattr(self._config, "workerinput", None)
        if workerinput is not None:
            path = Path(workerinput["last_words"], workerinput["workerid"])
            self._last_words = path.open("w", encoding="utf-8")
            faulthandler.enable(self._last_words)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        entry = self._quarantine.entry_of(item.nodeid)
        if entry is not None:
            item.user_properties.append(("quarantine", entry.reference))
        self._start_watch(item)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        # pytest's own plug-in cancels every watch once a test has failed.
        self._start_watch(item)

    def _start_watch(self, item: pytest.Item) -> None:
        """Sets the clock that ends the process.

        A thread of faulthandler's in C, since a kernel that hangs may hold the interpreter
        lock, which every watch written in Python needs (pytest-timeout). pytest 9's own
        ``faulthandler_exit_on_timeout`` is this too, but not in 8.4, which vendor images have;
        it has one limit for all tests, and its last words go where nobody keeps them.
        """
        limit = self._quarantine.hang_limit(self._config, item.nodeid)
        if limit and self._last_words and not is_debugged():
            faulthandler.dump_traceback_later(limit, exit=True, file=self._last_words)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo is not None:
            self._check_device(report)
            self._excuse(item, report)
        reason = _judge_skip(report)
        if reason is not None:
            item.user_properties.append(("reason", reason.value))
            report.user_properties = list(item.user_properties)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, Any]:
        report = yield
        _judge_skip(report)
        return report

    def pytest_unconfigure(self) -> None:
        if self._last_words is not None:
            faulthandler.disable()
            self._last_words.close()

    def _check_device(self, report: pytest.TestReport) -> None:
        """Ends the worker where the device is left unusable: the other tests get a fresh one."""
        if self._device_answers():
            return
        if self._last_words is None:
            report.longrepr = f"{NO_ANSWER}; it failed with\n{report.longreprtext}"
            return
        # The report of the dead worker takes this one's place.
        self._last_words.write(f"{NO_ANSWER}; it failed with\n{report.longreprtext}\n")
        self._last_words.flush()
        os._exit(1)

    def _excuse(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """A failure that the quarantine foresees is a skip; its teardown must work."""
        entry = self._quarantine.entry_of(item.nodeid)
        if entry is not None and report.when != "teardown":
            crash = getattr(report.longrepr, "reprcrash", None)
            _turn_into_skip(report, entry, crash.message if crash else report.longreprtext)


def is_debugged() -> bool:
    """Says whether somebody may be looking at a breakpoint, for as long as they like."""
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    return bool(sys.gettrace() or (monitoring and monitoring.get_tool(monitoring.DEBUGGER_ID)))


def _skip_message(report: Any) -> str:
    if hasattr(report, "wasxfail"):
        return f"xfail {report.wasxfail}".strip()
    message = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    return str(message).removeprefix("Skipped: ")


def _judge_skip(report: Any) -> SkipReason | None:
    """Returns a skip's reason; one outside of the vocabulary turns the skip into a failure."""
    if not report.skipped and not hasattr(report, "wasxfail"):
        return None
    message = _skip_message(report)
    reason = reason_of(message)
    if reason is None:
        vars(report).pop("wasxfail", None)
        report.outcome = "failed"
        report.longrepr = (
            f"skipped with {message!r}, which is no reason of the closed vocabulary (reasons.py): "
            + ", ".join(reason.value for reason in SkipReason)
        )
    return reason


def _turn_into_skip(report: pytest.TestReport, entry: Entry, what: str) -> None:
    path, line, _ = report.location
    said = what.strip().partition("\n")[0]
    detail = f"{entry.reference}: {entry.reason}; {said}"
    message = skip_message(SkipReason.VENDOR_DEFECT, detail)
    report.outcome = "skipped"
    report.longrepr = (path, (line or 0) + 1, f"Skipped: {message}")


class DeathReports:
    """The hooks of the controlling process: how a worker died, and what its test is to be."""

    def __init__(
        self, config: pytest.Config, quarantine: Quarantine, properties: dict[str, Any]
    ) -> None:
        self._config = config
        self._quarantine = quarantine
        self._properties = properties
        self._folder = tempfile.TemporaryDirectory(prefix="infini-ops-tests-")
        config.add_cleanup(self._folder.cleanup)
        self._collected: set[str] = set()
        self._called: set[str] = set()
        self._ended: set[str] = set()

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["last_words"] = self._folder.name
        node.sendcommand = _send_while_it_lives(node.sendcommand)

    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        words = Path(self._folder.name, report.node.gateway.id)
        text = words.read_text(encoding="utf-8", errors="replace") if words.exists() else ""
        limit = self._quarantine.hang_limit(self._config, crashitem)
        outcome, cause = how_it_died(text, limit)
        file, _, name = crashitem.partition("::")
        report.location = (file, None, name)
        properties = TestName(crashitem).properties
        if properties:
            report.user_properties += {**self._properties, **properties}.items()
        report.longrepr += (
            f": {cause}\n{_stack(text)}To see what it prints: pytest -n 0 -s '{crashitem}'"
        )
        entry = self._quarantine.entry_of(crashitem)
        if entry is None:
            return
        report.user_properties.append(("quarantine", entry.reference))
        if entry.outcome is outcome and crashitem not in self._called:
            report.user_properties.append(("reason", SkipReason.VENDOR_DEFECT.value))
            _turn_into_skip(report, entry, cause)
        else:
            report.longrepr += (
                f"\nIts quarantine entry, {entry}, says that it {entry.outcome.value}."
            )

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collected.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._called.add(report.nodeid)
        elif report.when != "setup":
            self._ended.add(report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Too many deaths end pytest-xdist's loop early, which must not look like success."""
        result = yield
        session.testsfailed += len(self._collected - self._ended)
        return result

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        missing = len(self._collected - self._ended)
        if missing:
            terminalreporter.write_line(
                f"{missing} of {len(self._collected)} tests did not run. Where too many workers "
                "died, the device or the build is broken, or see --max-worker-restart "
                f"(default {WORKER_DEATHS})."
            )


def _send_while_it_lives(send: Callable[..., None]) -> Callable[..., None]:
    """What cannot be sent to a worker is lost with it, and no error of the whole run.

    pytest-xdist sends more tests when one has ended, and the worker may have died in the next one
    by then: a broken pipe, which ends the run as an internal error (pytest-xdist 3.8). Its death
    is the next event of that worker's, which gives back the tests that it had or was sent.
    """

    def send_while_it_lives(name: str, **arguments: Any) -> None:
        with suppress(OSError):
            send(name, **arguments)

    return send_while_it_lives


def how_it_died(last_words: str, limit: float) -> tuple[Outcome, str]:
    """Reads from what a worker left behind how it ended."""
    if last_words.startswith(NO_ANSWER):
        return Outcome.CRASHES, NO_ANSWER
    if fatal := _FATAL.search(last_words):
        return Outcome.CRASHES, fatal[1]
    if "Timeout (" in last_words:
        return Outcome.HANGS, f"no end after {limit:g} s"
    return Outcome.CRASHES, NO_TRACEBACK


def _stack(last_words: str) -> str:
    """Leaves out the frames of pytest, and threads that have no other."""
    kept: list[str] = []
    for line in [*last_words.splitlines(), ""]:
        if _MACHINERY.search(line) or line.startswith("Extension modules:"):
            continue
        if kept and kept[-1].endswith("(most recent call first):") and not line.startswith("  "):
            kept.pop()
        if line:
            kept.append(line)
    return "".join(f"{line}\n" for line in kept)


class QuarantineReport:
    """Says at the end which entries held, for those who look after the file."""

    def __init__(self, config: pytest.Config, quarantine: Quarantine, folder: Path) -> None:
        self._quarantine = quarantine
        self._whole_suite = _whole_suite(config, folder)
        self._matched: set[Entry] = set()
        self._collected = False
        self._results: defaultdict[Entry, Counter[str]] = defaultdict(Counter)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collect(ids)

    def _collect(self, node_ids: Iterable[str]) -> None:
        self._collected = True
        self._matched.update(filter(None, map(self._quarantine.entry_of, node_ids)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        entry = self._quarantine.entry_of(report.nodeid)
        if entry is None or (report.passed and report.when != "call"):
            return
        defect = dict(report.user_properties).get("reason") == SkipReason.VENDOR_DEFECT.value
        self._results[entry]["held" if report.skipped and defect else report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> list[str]:
        results = self._results
        notes = {
            "stale": [entry for entry in results if results[entry]["passed"]],
            "only skipped": [entry for entry in results if results[entry].keys() == {"skipped"}],
            "worse than they say": [entry for entry in results if results[entry]["failed"]],
        }
        if self._whole_suite and self._collected:
            notes["without a test"] = [
                entry for entry in self._quarantine.entries if entry not in self._matched
            ]
        if not results and not any(notes.values()):
            return []
        held = sum(result.keys() == {"held"} for result in results.values())
        return [
            "; ".join(
                [
                    f"quarantine: {held} of {len(results)} entries held",
                    *(
                        f"{what}: {', '.join(map(str, found))}"
                        for what, found in notes.items()
                        if found
                    ),
                ]
            )
        ]


def _whole_suite(config: pytest.Config, folder: Path) -> bool:
    start = config.invocation_params.dir
    return not any(config.getoption(name, None) for name in _NARROWING) and any(
        folder.is_relative_to((start / argument).resolve()) for argument in config.args
    )
