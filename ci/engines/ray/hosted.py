"""The caller's side of a platform on a host: its actor, its steps, and what it writes.

If the actor dies, another one on the same host adopts what runs there. If the host does not answer,
the platform is lost until ``--resume`` finds the host again.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic, sleep
from typing import Any

from ci.engines import EngineMessage, Observer, say
from ci.engines.archives import chunks_of, extract
from ci.engines.logs import IMAGE_LOG
from ci.engines.ray.actor import RESULTS, feed_name, write_end
from ci.engines.ray.cluster import (
    RETRY_S,
    ActorGoneError,
    Host,
    HostLostError,
    NoAnswerError,
    PoolCluster,
)
from ci.engines.ray.messages import (
    PROGRAM,
    SOURCE,
    HostStep,
    Request,
    StepOutcome,
    files_of,
)
from ci.engines.ray.placement import Record, find_or_start_actor, host_lost
from ci.engines.ray.transfer import PIECE, Tree, fetched, send
from ci.errors import CiError, InfrastructureError, PrerequisiteError
from ci.facts.events import parse_event
from ci.model.plan import RunPlan
from ci.protocol.agent_files import ENGINE_EVENTS
from ci.protocol.events import EVENTS, Output, RunFinished
from ci.util.lines import LineSplitter
from ci.util.text import counted

# Between two looks at a running step, of 1 ms each: soon after news, which may be its end.
LEAST_POLL_S = 0.05
MOST_POLL_S = 0.25
POLL_SHARE = 0.1  # of the time since the last news
LONGEST_FEED_LINE = 1 << 20
MOST_ADOPTIONS = 3  # of one platform: a host that kills its actors is broken
SHOWN = {**EVENTS, EngineMessage.event: EngineMessage}  # of the agent, and of the engine there
LAST_LINE = f'{{"event": "{RunFinished.event}"'.encode()
MOST_INTERRUPTS = 3  # of a local engine, which reacts to each of them

UNREACHABLE_S = 10.0  # of a host: it, or the network to it, is down
FROZEN_S = 45.0  # without an answer of a host that can be reached
SAY_S = 5.0  # without an answer: reported


class Mirror:
    """Writes here what the files of a running platform hold there, and shows its events.

    The complete files come at the end. If they never do, these are what the run is judged by.
    """

    def __init__(self, plan: RunPlan, observer: Observer) -> None:
        names = [ENGINE_EVENTS, IMAGE_LOG, *(f"{stage.name}.log" for stage in plan.stages)]
        self._files = {f"{RESULTS}/{name}": plan.results / name for name in names}
        self.offsets = dict.fromkeys(self._files, 0)
        self._observer = observer
        self._feed = ""
        self._lines = LineSplitter(LONGEST_FEED_LINE)
        self._seen = self._known = 0
        self.unreadable_lines = 0
        """Lines of the feeds that are not shown."""

    def follow(self, token: str, *, adopted: bool = False) -> None:
        """Read the events of a step; those of an adopted run come again from the first one."""
        self.offsets.pop(self._feed, None)
        self._feed = feed_name(token)
        self.offsets = {self._feed: 0, **self.offsets}
        self._lines = LineSplitter(LONGEST_FEED_LINE)
        self._known, self._seen = max(self._known, self._seen) if adopted else 0, 0
        self.unreadable_lines = 0 if adopted else self.unreadable_lines

    def add(self, news: Mapping[str, tuple[int, bytes]]) -> bool:
        """Add what an actor has read; return whether it was new."""
        advanced = False
        for name, (at, data) in news.items():
            if name == self._feed:
                for line in self._lines.feed(data):
                    self._show(line)
            else:
                # Without its last line the record is incomplete, and a later caller comes back.
                end = data.find(LAST_LINE) if name.endswith(ENGINE_EVENTS) else -1
                data = data if end < 0 else data[:end]
                with suppress(OSError):  # the complete files come at the end
                    self._files[name].parent.mkdir(parents=True, exist_ok=True)
                    write_end(self._files[name], at, data)
            advanced |= bool(data)
            self.offsets[name] = at + len(data)
        return advanced

    def _show(self, line: str) -> None:
        try:
            event = parse_event(line, SHOWN)
        except ValueError as error:  # the copied files have it
            self.unreadable_lines += 1
            if self.unreadable_lines == 1:
                say(self._observer, f"an event of the host is not shown: {error}")
            return
        if event is None:  # the adopted program is a newer one
            return
        is_agents = not isinstance(event, Output | EngineMessage)
        self._seen += is_agents
        if self._seen > self._known or (self._seen == self._known and not is_agents):
            self._observer.event(event)


class HostedPlatform:
    """A platform on a host."""

    def __init__(
        self, cluster: PoolCluster, plan: RunPlan, observer: Observer, actor: Any, host: Host
    ) -> None:
        self.host = host
        self._cluster = cluster
        self._plan = plan
        self._observer = observer
        self._actor = actor
        self._mirror = Mirror(plan, observer)
        self._trees: dict[str, str] = {}
        self._left_out: tuple[str, ...] = ()  # of the sources
        self._adoptions = 0

    @property
    def name(self) -> str:
        """The name of the host, for messages."""
        return f"host {self.host.name} ({self.host.address})"

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out of the sources, and of the display."""
        notes = tuple(f"left out of the sources: {it}" for it in self._left_out)
        lines = self._mirror.unreadable_lines
        return (*notes, f"not shown: {counted(lines, 'event')} of the host") if lines else notes

    def begin(self, trees: Mapping[str, Tree]) -> None:
        """Send what a new run needs."""
        self.call(self._actor.remove.remote)  # of an earlier attempt
        self._left_out = trees[SOURCE].left_out
        for name, tree in trees.items():
            self._send(name, tree)

    def _send(self, name: str, tree: Tree) -> None:
        send(tree, self._actor, self.call)
        self._trees[name] = tree.digest

    def carry_out(self, step: HostStep, **details: Any) -> StepOutcome:
        """Return the outcome of a step on the host, with its results here; raises its error.

        An interrupt is passed on, and the step returns what it has until then. The third one raises
        ``KeyboardInterrupt``.
        """
        return self._follow(step, partial(self._starting, step, **details))

    def adopt(self, program: Tree) -> StepOutcome:
        """Follow what an earlier caller started, as ``carry_out`` does.

        An answer without a value: it started nothing.
        """
        self._send(PROGRAM, program)
        step, token = self.call(self._actor.state.remote)
        if step in (HostStep.EXECUTE, HostStep.RESUME):
            self._mirror.follow(token)
            return self._follow(HostStep(step))
        return self.carry_out(HostStep.RESUME)  # by another actor, or not at all

    def _starting(self, step: HostStep, **details: Any) -> Callable[[], None]:
        """Return what starts a step, once for each token, even if it is repeated."""
        return partial(self._start, step, secrets.token_hex(8), **details)

    def _follow(
        self, step: HostStep, starting: Callable[[], Callable[[], None]] | None = None
    ) -> StepOutcome:
        """Follow a step that runs, or that the result of ``starting`` starts."""
        begin = starting and starting()
        interrupts, gone = 0, None
        while True:
            try:
                if gone is not None:
                    self._replace_actor(gone)
                    gone = None
                    if step == HostStep.SETTLE and starting:  # may be repeated
                        begin = starting()
                    else:
                        step = HostStep.RESUME
                        begin = self._starting(step)
                if begin is not None:
                    begin()
                    begin = None
                    if interrupts:
                        self._interrupt()
                answer = self._outcome(step)
                # A step with nothing to adopt does not notice the interrupt of the run.
                is_interrupted = answer.interrupted or (interrupts > 0 and answer.value is None)
                return replace(answer, interrupted=is_interrupted)
            except KeyboardInterrupt:
                interrupts += 1
                self._say("interrupted: ending what runs on the host")
                self._interrupt()
                if interrupts == MOST_INTERRUPTS:
                    raise
            except ActorGoneError as error:
                if step == HostStep.PREPARE:
                    raise self.program_ended(error) from error
                gone = error

    def end(self, *, remove: bool) -> None:
        """End the actor; ``remove``: also the files of the run, and the record of its host."""
        with suppress(CiError, ActorGoneError, NoAnswerError):
            if remove:
                self.call(self._actor.remove.remote)
                Record.forget(self._plan)
            self._cluster.get(self._actor.leave.remote())  # without a head, no one confirms it
        self._cluster.kill(self._actor)

    def call(self, make: Callable[[], Any], made: Any = None, /) -> Any:
        """Return the answer to a call, which is made again if its connection was lost.

        Raises ``ActorGoneError``, or ``HostLostError`` if the host cannot be reached, or has not
        answered for too long.
        """
        since, unreachable, said = monotonic(), None, False
        reference = make() if made is None else made
        while True:
            try:
                answer = self._cluster.get(reference)
                if said:
                    self._say(f"{self.name} answers again")
                return answer
            except NoAnswerError as error:
                now = monotonic()
                unreachable = None if self.host.is_reachable() else unreachable or now
                if unreachable is not None and now - unreachable > UNREACHABLE_S:
                    raise self._lost("cannot be reached") from error
                if now - since > FROZEN_S:
                    raise self._lost(f"has not answered for {now - since:.0f} s") from error
                if not said and now - since > SAY_S:
                    said = True
                    self._say(f"{self.name} has not answered for {now - since:.0f} s")
                if error.is_connection_lost:
                    sleep(RETRY_S)
                    reference = make()

    def _interrupt(self) -> None:
        with suppress(NoAnswerError, ActorGoneError):
            self._cluster.get(self._actor.interrupt.remote())

    def _start(self, step: HostStep, token: str, **details: Any) -> None:
        """Start a step, once, even if this is repeated."""
        self._mirror.follow(token, adopted=step == HostStep.RESUME)
        plan = replace(self._plan, contract=None)  # megabytes, and only for the verdict
        request = Request(plan=plan, trees=self._trees, files=files_of(plan), **details)
        content = pickle.dumps(request)  # 450 KB with a CA bundle, which the image gets too
        for at in range(0, len(content), PIECE):
            piece = content[at : at + PIECE]
            self.call(partial(self._actor.receive.remote, f"{step}.request", at, piece))
        # A plain value: a host cannot read types of this program.
        start = partial(self._actor.start.remote, step.value, token, self._trees[PROGRAM])
        self.call(start)

    def _outcome(self, step: HostStep) -> StepOutcome:
        """Follow a step until it ends, and copy its results."""
        heard = monotonic()
        while True:
            news, runs = self.call(partial(self._actor.poll.remote, self._mirror.offsets))
            if self._mirror.add(news):
                heard = monotonic()
            elif not runs:
                break
            else:
                silence = monotonic() - heard
                sleep(min(max(LEAST_POLL_S, POLL_SHARE * silence), MOST_POLL_S))
        content = b""
        while piece := self.call(
            partial(self._actor.read.remote, f"{step}.answer", len(content), PIECE)
        ):
            content += piece
        if not content:
            raise ActorGoneError("the program on the host was killed")
        answer: StepOutcome = pickle.loads(content)  # noqa: S301 - of a host, which runs our code
        if answer.error is not None:
            raise self._located(answer.error)
        if answer.archive is None:
            return answer
        results, limits = self._plan.results, self._plan.result_limits
        with fetched(answer.archive, self._actor, self.call, results) as file:
            left_out = extract(chunks_of(file), results, limits=limits)
        return replace(answer, notes=tuple(f"not copied from the host: {it}" for it in left_out))

    def program_ended(self, why: ActorGoneError) -> InfrastructureError:
        """Return the error for an actor that ended before the stages began."""
        return InfrastructureError(
            f"{self.name}: the program was ended: {why}", remedy="Run again."
        )

    def _replace_actor(self, why: ActorGoneError) -> None:
        """Start another actor, to adopt what the lost one left running."""
        self._adoptions += 1
        if self._adoptions > MOST_ADOPTIONS:
            raise self._lost(f"ended the program {self._adoptions} times: {why}") from why
        self._say(f"{self.name}: the program was lost, adopting what it started: {why}")
        self._actor, self.host = find_or_start_actor(self._cluster, self._plan, self.host.address)

    def _located(self, error: CiError) -> CiError:
        """Return an error of the host with its name."""
        message = f"{self.name}: {error}"
        if isinstance(error, PrerequisiteError):  # its remedy would be taken for this machine
            remedy = f"On that host: {error.remedy}" if error.remedy else None
            return InfrastructureError(message, remedy=remedy)
        return type(error)(message, remedy=error.remedy)

    def _lost(self, why: str) -> HostLostError:
        return host_lost(self._plan, self.name, why)

    def _say(self, text: str) -> None:
        say(self._observer, text)
