"""Guards of the operator suite: a bad kernel costs only its own test, and every skip has a reason.

A test runs in a worker process of pytest-xdist, which starts another worker if that one dies. A
dying worker writes the signal and the Python stack into its crash log, a file of the run. From
this log the controlling process reports the test and how it ended. This module has the hooks of
both processes; ``conftest`` adds them. They apply the rules of ``quarantine`` and ``reasons``.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
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
WORKER_DEATHS = 100  # more deaths mean a broken device or build, not a bad kernel

NO_ANSWER = "the device no longer answers after this test"
NO_TRACEBACK = "killed by another process, or ended by a call of exit() (no traceback)"

# Options for watching the tests, or for running none: they start no worker process.
_WATCHED = ("usepdb", "trace", "collectonly", "showfixtures", "show_fixtures_per_test")
_SETUP_SHOWN = ("setuponly", "setupshow", "setupplan")
# Options that leave out a part of the suite.
_NARROWING = ("keyword", "markexpr", "deselect", "lf", "ignore", "ignore_glob", "slot")

# Frames to leave out of a stack: those of the test runner, and those of the interpreter, which
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
    """Runs the tests in a worker process, unless the command line decides otherwise.

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
    death_without_library: Callable[[Sequence[TestName]], str | None],
) -> None:
    """Adds the hooks for this process: the controlling one, a worker, or the only one.

    Args:
        entries: the platform's quarantine.
        folder: the folder of the suite, to check whether all of it was collected.
        properties: recorded for a test whose process died before it recorded them.
        device_answers: returns whether the device still works; called after a failure.
        death_without_library: repeats the calls of the tests whose process crashed, in a process
            without the library; returns how that one dies, or None.
    """
    quarantine = Quarantine(entries)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(QuarantineReport(config, quarantine, folder))
    if config.getoption("dist", "no") != "no" and not config.option.collectonly:
        reports = DeathReports(config, quarantine, properties, death_without_library)
        config.pluginmanager.register(reports)
    else:
        config.pluginmanager.register(TestGuards(config, quarantine, device_answers))


def platform_quarantine(path: Path, platform: str, platforms: Iterable[str]) -> tuple[Entry, ...]:
    """Reads the quarantine of a platform; an error in the file is a usage error."""
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
        """Returns the time limit of a test in seconds; 0: no limit."""
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
        self._crash_log: Any = None

    def pytest_sessionstart(self) -> None:
        """Opens the crash log, after pytest's own faulthandler plug-in has started."""
        workerinput = getattr(self._config, "workerinput", None)
        if workerinput is not None:
            path = Path(workerinput["crash_log"], workerinput["workerid"])
            self._crash_log = path.open("w", encoding="utf-8")
            faulthandler.enable(self._crash_log)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        entry = self._quarantine.entry_of(item.nodeid)
        if entry is not None:
            item.user_properties.append(("quarantine", entry.reference))
        self._start_timer(item)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector) -> None:
        # pytest's own plug-in has just cancelled every timer. The rest of the test may hang, too.
        if isinstance(node, pytest.Item):
            self._start_timer(node)

    def _start_timer(self, item: pytest.Item) -> None:
        """Starts the timer that ends the process.

        The timer is a C thread of faulthandler: a kernel that hangs may hold the interpreter
        lock, which a timer in Python (pytest-timeout) needs. pytest 9 has the same timer,
        ``faulthandler_exit_on_timeout``, but pytest 8.4, which vendor images have, does not.
        That option also has one limit for all tests, and does not keep its output in a file.
        """
        limit = self._quarantine.hang_limit(self._config, item.nodeid)
        if limit and self._crash_log and not is_debugged():
            faulthandler.dump_traceback_later(limit, exit=True, file=self._crash_log)

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
        if self._crash_log is not None:
            faulthandler.disable()
            self._crash_log.close()

    def _check_device(self, report: pytest.TestReport) -> None:
        """Ends the worker if the device is unusable, so that other tests get a fresh process."""
        if self._device_answers():
            return
        if self._crash_log is None:
            report.longrepr = f"{NO_ANSWER}; it failed with\n{report.longreprtext}"
            return
        # The report of the dead worker replaces this one.
        self._crash_log.write(f"{NO_ANSWER}; it failed with\n{report.longreprtext}\n")
        self._crash_log.flush()
        os._exit(1)

    def _excuse(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Turns a failure that the quarantine expects into a skip; the teardown must work."""
        entry = self._quarantine.entry_of(item.nodeid)
        if entry is not None and report.when != "teardown":
            crash = getattr(report.longrepr, "reprcrash", None)
            what = crash.message if crash else report.longreprtext
            _turn_into_skip(report, _defect(entry, what))


def is_debugged() -> bool:
    """Report whether a debugger is active: a test may then wait at a breakpoint for any time."""
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
            f"skip reason: got {message!r}, expected 'REASON: detail' with a reason of reasons.py: "
            + ", ".join(reason.value for reason in SkipReason)
        )
    return reason


def _defect(entry: Entry, what: str) -> str:
    """Returns the message of a skip for which an entry is the reason."""
    first_line = what.strip().partition("\n")[0]
    detail = f"{entry.reference}: {entry.reason}; {first_line}"
    return skip_message(SkipReason.VENDOR_DEFECT, detail)


def _turn_into_skip(report: pytest.TestReport, message: str) -> None:
    path, line, _ = report.location
    report.outcome = "skipped"
    report.longrepr = (path, (line or 0) + 1, f"Skipped: {message}")


class DeathReports:
    """The hooks of the controlling process: they report how a worker died during a test."""

    def __init__(
        self,
        config: pytest.Config,
        quarantine: Quarantine,
        properties: dict[str, Any],
        death_without_library: Callable[[Sequence[TestName]], str | None],
    ) -> None:
        self._config = config
        self._quarantine = quarantine
        self._properties = properties
        self._death_without_library = death_without_library
        self._folder = tempfile.TemporaryDirectory(prefix="infini-ops-tests-")
        config.add_cleanup(self._folder.cleanup)
        self._collected: set[str] = set()
        self._called: set[str] = set()
        self._ended: set[str] = set()
        self._before: defaultdict[str, list[TestName]] = defaultdict(list)
        """The operator tests that ended in each worker."""
        self._repeated: set[str] = set()

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["crash_log"] = self._folder.name
        node.sendcommand = _ignore_dead_worker(node.sendcommand)

    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: Any) -> None:
        log = Path(self._folder.name, report.node.gateway.id)
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        limit = self._quarantine.hang_limit(self._config, crashitem)
        outcome, cause = parse_crash_log(text, limit)
        file, _, name = crashitem.partition("::")
        report.location = (file, None, name)
        test = TestName(crashitem)
        if test.properties:
            report.user_properties += {**self._properties, **test.properties}.items()
        report.longrepr += (
            f": {cause}\n{_stack(text)}To see what it prints: pytest -n 0 -s '{crashitem}'"
        )
        entry = self._quarantine.entry_of(crashitem)
        if entry is None:
            self._excuse(report, test, outcome, sched)
            return
        report.user_properties.append(("quarantine", entry.reference))
        if entry.outcome is outcome and crashitem not in self._called:
            report.user_properties.append(("reason", SkipReason.VENDOR_DEFECT.value))
            _turn_into_skip(report, _defect(entry, cause))
        else:
            report.longrepr += (
                f"\nThe quarantine expects that this test {entry.outcome.value}: {entry}."
            )

    def _excuse(self, report: Any, test: TestName, outcome: Outcome, sched: Any) -> None:
        """Excuses the crash of an operator test if torch alone dies, too.

        If torch dies of the calls of this test, the test is skipped. If it dies only after those
        of the tests before it in the process, this test runs again in another one: one of them
        damaged the memory of the process.
        """
        if outcome is not Outcome.CRASHES or not test.properties or test.node_id in self._called:
            return
        death = self._death_without_library([test])
        if death is not None:
            report.user_properties.append(("reason", SkipReason.TORCH_CRASHES.value))
            message = skip_message(SkipReason.TORCH_CRASHES, f"{death}, without the library, too")
            _turn_into_skip(report, message)
            return
        before = self._before[report.node.gateway.id]
        if not before or test.node_id in self._repeated:
            return
        death = self._death_without_library([*before, test])
        if death is None:
            return
        with suppress(NotImplementedError):  # of the schedulers of --dist=loadscope and each
            sched.mark_test_pending(test.node_id)
            self._repeated.add(test.node_id)
            report.outcome = "rerun"
            report.longrepr = (
                f"runs again: torch, without the library, dies, too, after the tests before it in "
                f"the process ({len(before)}): {death}\n{report.longrepr}"
            )

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collected.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome: str = report.outcome  # pytest has no "rerun"
        if report.when == "call":
            self._called.add(report.nodeid)
        elif report.when != "setup" and outcome != "rerun":
            self._ended.add(report.nodeid)
            if (test := TestName(report.nodeid)).properties:
                self._before[report.node.gateway.id].append(test)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Counts tests that did not run as failures: many deaths end pytest-xdist's loop early."""
        result = yield
        session.testsfailed += len(self._collected - self._ended)
        return result

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        missing = len(self._collected - self._ended)
        if missing:
            terminalreporter.write_line(
                f"{missing} of {len(self._collected)} tests did not run. If too many workers died, "
                "the device or the build is broken. To allow more deaths, pass "
                f"--max-worker-restart=N (default {WORKER_DEATHS})."
            )


def _ignore_dead_worker(send: Callable[..., None]) -> Callable[..., None]:
    """Wraps ``send`` so that a failure to send to a dead worker does not end the run.

    pytest-xdist sends more tests when one has ended. By then the worker may have died in the next
    one, and the broken pipe would end the run as an internal error (pytest-xdist 3.8). The next
    event of that worker is its death, which returns all its tests to the queue.
    """

    def send_to_worker(name: str, **arguments: Any) -> None:
        with suppress(OSError):
            send(name, **arguments)

    return send_to_worker


def parse_crash_log(crash_log: str, limit: float) -> tuple[Outcome, str]:
    """Returns how a worker died, in the terms of the quarantine and as a message."""
    if crash_log.startswith(NO_ANSWER):
        return Outcome.CRASHES, NO_ANSWER
    if fatal := _FATAL.search(crash_log):
        return Outcome.CRASHES, fatal[1]
    if "Timeout (" in crash_log:
        return Outcome.HANGS, f"timed out after {limit:g} s"
    return Outcome.CRASHES, NO_TRACEBACK


def _stack(crash_log: str) -> str:
    """Returns the stacks without pytest's frames, and without threads that have no other."""
    kept: list[str] = []
    for line in [*crash_log.splitlines(), ""]:
        if _MACHINERY.search(line) or line.startswith("Extension modules:"):
            continue
        if kept and kept[-1].endswith("(most recent call first):") and not line.startswith("  "):
            kept.pop()
        if line:
            kept.append(line)
    return "".join(f"{line}\n" for line in kept)


class QuarantineReport:
    """Reports at the end which entries were confirmed, for the maintainers of the file."""

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
        self._results[entry]["confirmed" if report.skipped and defect else report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> list[str]:
        results = self._results
        notes = {
            "stale": [entry for entry in results if results[entry]["passed"]],
            "only skipped": [entry for entry in results if results[entry].keys() == {"skipped"}],
            "worse than expected": [entry for entry in results if results[entry]["failed"]],
        }
        if self._whole_suite and self._collected:
            notes["without a test"] = [
                entry for entry in self._quarantine.entries if entry not in self._matched
            ]
        if not results and not any(notes.values()):
            return []
        confirmed = sum(result.keys() == {"confirmed"} for result in results.values())
        return [
            "; ".join(
                [
                    f"quarantine: {confirmed} of {len(results)} entries confirmed",
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
