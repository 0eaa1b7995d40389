"""``python -m bench.changes.team``: the messages that a team would get; prints Markdown tables.

A scheduled job imports the runs of some commits as ``import`` does, and checks them as ``history
--check --fail-on environment --notify`` does, with a real store and a real webhook on this machine.
Ctrl-C ends it early, with the tables of the commits so far.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from bench.changes.team_history import LEAKING, TEAM, Cause, TeamHistory, plant
from bench.rows import MeasurementError
from ci.cli import main as ci_main
from ci.errors import ExitCode
from ci.model.results import RunResult
from ci.store.rows import AlarmEvent

COMMITS = 1_000
EVERY = 4  # commits from one check to the next: three checks on a workday
NEAR = 10  # commits around the range of a message, in which a cause may still be meant
LAST = 5  # commits whose checks are timed


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message as the webhook got it."""

    sent_at: int
    """The commit after whose runs it came."""
    event: AlarmEvent
    alarm_id: str
    kind: str
    headline: str
    platforms: tuple[str, ...] = ()
    before: int | None = None
    first: int | None = None
    """The commits between which the rise began: after ``before``, at most ``first``."""

    @property
    def width(self) -> int:
        """The commits between which the rise began."""
        return (self.first or 0) - (self.before or 0)

    def distance(self, cause: Cause) -> int | None:
        """Commits from a cause to the range, 0 inside; ``None`` if it cannot be meant."""
        if self.before is None or self.first is None:
            return None
        if not {*self.platforms} & {*cause.platforms}:
            return None
        last = cause.at + (LEAKING if cause.is_leak else 0)
        distance = max(self.before + 1 - last, cause.at - self.first, 0)
        return distance if distance <= NEAR else None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was sent in a history."""

    history: TeamHistory
    messages: tuple[Message, ...]
    runs: dict[str, list[int]]
    """The commits of the runs of each platform."""
    import_s: float
    check_s: float
    """The median seconds of the last imports and checks."""

    def cause_of(self, message: Message) -> Cause | None:
        """The cause that a first message means; ``None``: a false alarm."""
        near = [(message.distance(it), it.is_leak, it) for it in self.history.causes]
        known = [(distance, leak, it) for distance, leak, it in near if distance is not None]
        return min(known, key=lambda it: it[:2])[2] if known else None

    @property
    def first_messages(self) -> list[Message]:
        return [it for it in self.messages if it.event is AlarmEvent.NEW]

    def messages_of(self, cause: Cause) -> list[Message]:
        """The messages of the alarms that a cause raised, until a correction names another one."""
        named: dict[str, Cause | None] = {}
        found = []
        for message in self.messages:
            if message.event is AlarmEvent.NEW:
                named[message.alarm_id] = self.cause_of(message)
            elif message.event is AlarmEvent.CORRECTED:
                named[message.alarm_id] = self.cause_of(message) or named.get(message.alarm_id)
            if named.get(message.alarm_id) == cause:
                found.append(message)
        return found

    def false_alarms(self, platform: str) -> list[Message]:
        """First messages with a platform that no cause near them concerns."""
        return [
            it
            for it in self.first_messages
            if platform in it.platforms
            and not any(
                platform in cause.platforms and it.distance(cause) is not None
                for cause in self.history.causes
            )
        ]

    def delay(self, cause: Cause) -> int | None:
        """Runs with the cause until its first message, on the platform that had most of them."""
        sent = [it for it in self.messages_of(cause) if it.first is not None]
        if not sent:
            return None
        platforms = {*sent[0].platforms} & {*cause.platforms}
        return max(
            sum(cause.at <= place <= sent[0].sent_at for place in self.runs[it]) for it in platforms
        )


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.bodies.append(json.loads(self.rfile.read(length)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


class Receiver(HTTPServer):
    """A webhook on this machine."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/"


@contextmanager
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@dataclass(kw_only=True)
class _Replay:
    """A store, its webhook, and the commands of the product on them."""

    history: TeamHistory
    folder: Path
    server: Receiver
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"import": [], "history": []})

    def __post_init__(self) -> None:
        self.places = {commit: place for place, commit in enumerate(self.history.ids())}
        (self.folder / "source").mkdir()

    def ci(self, name: str, *words: str) -> None:
        """Run a command of the product; raises ``MeasurementError`` if it fails."""
        begin, said = time.perf_counter(), StringIO()
        with redirect_stdout(said):
            code = ci_main([name, *words, f"--results={self.folder / 'results'}"])
        if code == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
        if code not in (ExitCode.PASSED, ExitCode.REGRESSION):
            raise MeasurementError(f"{name}: got exit code {code}: {said.getvalue()}")
        self.seconds[name].append(time.perf_counter() - begin)

    def take(self, place: int, runs: Sequence[RunResult]) -> None:
        """Import runs from the folder that another machine left."""
        elsewhere = self.folder / "elsewhere" / str(place)
        for run in runs:
            folder = elsewhere / run.run_id
            folder.mkdir(parents=True)
            (folder / "results.json").write_text(run.to_json(), encoding="utf-8")
        self.ci("import", str(elsewhere))

    def check(self, place: int) -> list[Message]:
        """Check all platforms, and return the messages sent."""
        known = len(self.server.bodies)
        words = ("--check", "--fail-on=environment", f"--source={self.folder / 'source'}")
        self.ci("history", *words, f"--notify={self.server.url}")
        return [self._message(it, place) for it in self.server.bodies[known:]]

    def _message(self, body: dict[str, Any], place: int) -> Message:
        ends = (body["last_run_before"], body["first_run_after"])
        before, first = (self.places[it["commit"]] if it else None for it in ends)
        return Message(
            sent_at=place,
            event=AlarmEvent(body["event"]),
            alarm_id=body["id"],
            kind=body["kind"],
            headline=body["headline"],
            platforms=tuple(dict.fromkeys(row["platform"] for row in body["rows"])),
            before=before,
            first=first,
        )


def replay(history: TeamHistory, folder: Path, every: int = 1) -> Outcome:
    """Import and check the runs of ``every`` so many commits; ``folder`` is empty.

    Ctrl-C ends the history early.
    """
    messages: list[Message] = []
    runs: dict[str, list[int]] = {it.platform: [] for it in history.team}
    with receiver() as server:
        team = _Replay(history=history, folder=folder, server=server)
        done = 0
        waiting: list[RunResult] = []
        with suppress(KeyboardInterrupt):
            for place, results in history.runs():
                waiting += results
                for result in (it for run in results for it in run.platforms):
                    runs[result.platform].append(place)
                if not waiting or ((place + 1) % every and place + 1 < history.commits):
                    continue
                team.take(place, waiting)
                waiting = []
                for message in team.check(place):
                    print(_progress(message), file=sys.stderr, flush=True)
                    messages.append(message)
                done = place + 1
    begun = tuple(it for it in history.causes if it.at < done)
    import_s, check_s = (median(team.seconds[it][-LAST:]) for it in ("import", "history"))
    return Outcome(
        history=replace(history, commits=done, causes=begun),
        messages=tuple(messages),
        runs={name: [it for it in places if it < done] for name, places in runs.items()},
        import_s=import_s,
        check_s=check_s,
    )


def _progress(it: Message) -> str:
    at = f"after {it.before}, with {it.first}" if it.first is not None else ""
    return f"{it.sent_at}: {it.alarm_id} {it.event}: {it.headline} {at}".rstrip()


# Tables


def tables(outcome: Outcome) -> Iterator[str]:
    """Yield the lines of Markdown tables."""
    yield "| Platform | Disturbance | Runs | False alarms | In 1,000 runs |"
    yield "|---|---|--:|--:|--:|"
    for habit in outcome.history.team:
        runs, false = len(outcome.runs[habit.platform]), outcome.false_alarms(habit.platform)
        rate = f"{1000 * len(false) / runs:.1f}" if runs else ""
        yield f"| {habit.platform} | {habit.disturbance} | {runs} | {len(false)} | {rate} |"
    yield ""
    yield from _cause_table(outcome)
    yield ""
    yield from _summary(outcome)


def _cause_table(outcome: Outcome) -> Iterator[str]:
    yield "| Cause | Rise | Platforms | Runs until known | Range contains it | Commits | Messages |"
    yield "|---|---|---|--:|---|--:|---|"
    for cause in outcome.history.causes:
        sent = outcome.messages_of(cause)
        events = Counter(it.event for it in sent)
        new = next((it for it in sent if it.first is not None), None)
        said = ", ".join(f"{events[it]} {it}" for it in AlarmEvent if events[it]) or "-"
        delay = outcome.delay(cause)
        cells = (
            f"{cause.name}, at {cause.at}",
            f"{cause.stage} +{100 * cause.size:.0f} %",
            ", ".join(cause.platforms)
            if len(cause.platforms) < len(outcome.history.team)
            else "all",
            "-" if delay is None else str(delay),
            _verdict(new, cause),
            str(new.width) if new else "-",
            said,
        )
        yield f"| {' | '.join(cells)} |"


def _verdict(new: Message | None, cause: Cause) -> str:
    if new is None:
        return "-"
    distance = new.distance(cause)
    return "yes" if distance == 0 else f"no, {distance} off"


def _summary(outcome: Outcome) -> Iterator[str]:
    known = [it for it in outcome.history.causes if outcome.messages_of(it)]
    first = [(it, cause) for it in outcome.first_messages if (cause := outcome.cause_of(it))]
    right = [it for it, cause in first if it.distance(cause) == 0]
    widths = [
        it.first - it.before for it, _ in first if it.first is not None and it.before is not None
    ]
    delays = [delay for it in known if (delay := outcome.delay(it)) is not None]
    ends = AlarmEvent.RESOLVED
    sent = [message for it in known for message in outcome.messages_of(it)]
    begun = sum(it.event is not ends for it in sent)
    events = Counter(it.event for it in outcome.messages)
    rows = {
        "Commits, platforms": f"{outcome.history.commits}, {len(outcome.history.team)}",
        "Causes that a message named": f"{len(known)} of {len(outcome.history.causes)}",
        "Messages": ", ".join(f"{events[it]} {it}" for it in AlarmEvent),
        "First messages without a cause": str(len(outcome.first_messages) - len(first)),
        "First messages of a cause whose commits contain it": f"{len(right)} of {len(first)}",
        "Commits in their ranges, median": f"{median(widths):g}" if widths else "-",
        "Runs until known, median": f"{median(delays):g}" if delays else "-",
        "Messages for each named cause": f"{len(sent) / len(known):.1f}" if known else "-",
        "The same, without those of ends": f"{begun / len(known):.1f}" if known else "-",
        "One import, at the end": f"{outcome.import_s:.2f} s",
        "One check, at the end": f"{outcome.check_s:.2f} s",
    }
    yield "| Of all platforms | Measured |"
    yield "|---|--:|"
    yield from (f"| {name} | {value} |" for name, value in rows.items())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.changes.team", description=__doc__)
    parser.add_argument("--commits", type=int, default=COMMITS, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--every", type=int, default=EVERY, metavar="N", help="commits per check")
    options = parser.parse_args(arguments)
    os.environ["no_proxy"] = "127.0.0.1"
    causes = plant(options.commits, TEAM, Random(options.seed))  # noqa: S311
    history = TeamHistory(
        commits=options.commits, team=TEAM, causes=tuple(causes), seed=options.seed
    )
    with TemporaryDirectory() as folder:
        outcome = replay(history, Path(folder), options.every)
    print("\n".join(tables(outcome)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
