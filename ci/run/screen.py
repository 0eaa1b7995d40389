"""Draw the state of a run: lines for a terminal of any width, and words for a log.

Labels, stages, devices and output come from configurations and containers: ``clean`` makes them
inert, and each cell of a line is cut and padded to its width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ci.facts.measures import percent
from ci.run.status import Phase, PlatformStatus, RunStatus
from ci.util.text import counted, make_inert

ONE_LINE = 100  # columns from which a platform needs one line; two on a narrower terminal
TAIL = 3  # lines of a failing platform's log or tests
LONGEST = 1000  # characters of a text; no terminal is wider
CLOCK = 8  # columns: 99:59:59
LABEL = 24  # columns
LONGEST_BAR = 40
MINUTE = 60


@dataclass(frozen=True, kw_only=True)
class Symbols:
    """What lines are drawn with."""

    full: str = "\N{BOX DRAWINGS HEAVY HORIZONTAL}"
    empty: str = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
    passed: str = "\N{CHECK MARK}"
    failed: str = "\N{BALLOT X}"
    running: str = "\N{BLACK RIGHT-POINTING SMALL TRIANGLE}"
    waiting: str = "\N{MIDDLE DOT}"
    tail: str = "\N{BOX DRAWINGS LIGHT VERTICAL}"
    cut: str = "\N{HORIZONTAL ELLIPSIS}"


UNICODE = Symbols()
ASCII = Symbols(
    full="=", empty="-", passed="+", failed="x", running=">", waiting=".", tail="|", cut="~"
)


def clean(text: str) -> str:
    """Return a text as one line without passwords and without anything that a terminal obeys."""
    # Cut last: a password that is cut off in its middle would not be recognized.
    return " ".join(make_inert(text)[:LONGEST].split())


def clock(seconds: float) -> str:
    """``0:12:03``."""
    minutes, second = divmod(max(int(seconds), 0), MINUTE)
    return f"{minutes // MINUTE}:{minutes % MINUTE:02}:{second:02}"


def about(seconds: float | None) -> str:
    """``about 3 min left``; empty if nothing is known, or nothing is left."""
    if not seconds:
        return ""
    minutes = round(seconds / MINUTE)
    if not minutes:
        return "less than 1 min left"
    hours, rest = divmod(minutes, MINUTE)
    return f"about {hours} h {rest} min left" if hours else f"about {minutes} min left"


def _estimate(platform: PlatformStatus, now: float) -> str:
    """``about 3 min left``; of the stage, if a later one never ran: ``install: about ...``."""
    if (remaining := platform.remaining(now)) is not None:
        return about(remaining)
    left = about(platform.remaining_of_stage(now)) if platform.stage else ""
    return f"{platform.activity}: {left}" if left else ""


def _long_step(platform: PlatformStatus, now: float) -> str:
    since = platform.long_step(now)
    return "" if since is None else f"this step {clock(since)}"


def describe(platform: PlatformStatus, now: float) -> str:
    """Describe a running platform for a log: ``pytest for 0:12:03, 80/90 (89 %), 2 failed``."""
    words = [f"{platform.activity} for {clock(platform.elapsed(now))}", platform.waits]
    counts, fraction = platform.counts(), platform.fraction(now)
    if counts and fraction is not None:
        words.append(f"{counts} ({percent(fraction)})")
    elif fraction is not None:
        words.append(f"{percent(fraction)} of the usual time")
    else:
        words.append(counts)
    words += [_long_step(platform, now), _failed(platform), platform.device, platform.cache]
    words.append(_estimate(platform, now))
    return ", ".join(filter(None, words))


def _longest(texts: Iterable[str]) -> int:
    return max((cell_len(clean(it)) for it in texts), default=0)


def _failed(platform: PlatformStatus) -> str:
    return f"{platform.failed:,} failed" if platform.failed else ""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The widths of the cells of a line; the text takes the rest, and the clock is never cut."""

    width: int
    label: int
    stage: int
    bar: int
    counts: int = 13  # 12,345/12,345
    failed: int = 10  # 123 failed; on a narrow terminal in the second line
    symbols: Symbols = UNICODE

    @classmethod
    def of(cls, run: RunStatus, width: int, symbols: Symbols) -> Layout:
        platforms = run.platforms.values()
        has_room = width >= ONE_LINE
        label = min(_longest(it.label for it in platforms), LABEL, max(width // 3, 1))
        stages = _longest(name for it in platforms for name in (it.activity, *it.expected.stages))
        stage = min(max(stages, 9), 16 if has_room else 9)
        failed = cls.failed if has_room else 0
        room = width - 1 - sum((1, label, stage, cls.counts, failed, CLOCK)) - 6
        bar = min(max(room // 3 if has_room else room, 4), LONGEST_BAR)
        return cls(width=width, label=label, stage=stage, bar=bar, failed=failed, symbols=symbols)

    @property
    def has_room(self) -> bool:
        """Whether a line has room for a text beside its cells."""
        return self.width >= ONE_LINE

    def fit(self, text: str, width: int) -> str:
        """Return a text with this width, cut or padded."""
        if cell_len(text) > width > 0:
            return set_cell_size(text, width - 1) + self.symbols.cut
        return set_cell_size(text, max(width, 0))

    def line(self, cells: Sequence[tuple[str, str]], text: str, end: str) -> Text:
        """Return a line of cells, each with its style, a text that fills it, and a clock."""
        line = Text(no_wrap=True, overflow="crop")
        for cell, style in cells:
            line.append(cell, style).append(" " if cell else "")
        room = self.width - 1 - CLOCK - line.cell_len - 1
        if room < 0:
            line.truncate(self.width - 1 - CLOCK - 1, pad=True)
        line.append(self.fit(text, room), "dim").append(" ")
        return line.append(end.rjust(CLOCK)[:CLOCK])

    def bar_of(self, fraction: float | None) -> str:
        if fraction is None:
            return " " * self.bar
        full = int(fraction * self.bar)
        return self.symbols.full * full + self.symbols.empty * (self.bar - full)


def draw(
    run: RunStatus, *, width: int, height: int, now: float, symbols: Symbols = UNICODE
) -> list[Text]:
    """Draw all platforms and the run, each line at most ``width - 1`` columns wide.

    If there are more lines than ``height``, first tails are left out, then details, then platforms.
    """
    layout = Layout.of(run, width, symbols)
    platforms = [*run.platforms.values()]
    heads = [_head(layout, it, now) for it in platforms]
    details: list[list[Text]] = [
        [] if layout.has_room else _details(layout, it, now) for it in platforms
    ]
    room = height - 1 - len(heads)  # one for the run
    if sum(map(len, details)) > room:
        details = [[] for _ in platforms]
    room -= sum(map(len, details))
    lines: list[Text] = []
    for platform, head, detail in zip(platforms, heads, details, strict=True):
        tail = list(islice(_tail(layout, platform), max(room, 0)))
        room -= len(tail)
        lines += [head, *detail, *tail]
    return [*lines[: max(height - 1, 0)], _total(layout, run, now)]


def _head(layout: Layout, platform: PlatformStatus, now: float) -> Text:
    symbols, style = layout.symbols, "red" if platform.broken or platform.failed else "green"
    if platform.phase is Phase.DONE:
        mark = symbols.failed if platform.broken else symbols.passed
        cells = [(mark, style), (layout.fit(clean(platform.label), layout.label), "bold")]
        outcome = clean(platform.outcome)
        return layout.line(cells, outcome, clock(platform.elapsed(now)))
    waiting = platform.phase is Phase.WAITING
    fraction = None if waiting else platform.fraction(now)
    counts = platform.counts() or ("" if fraction is None else percent(fraction))
    cells = [
        (symbols.waiting, "dim") if waiting else (symbols.running, style),
        (layout.fit(clean(platform.label), layout.label), "dim" if waiting else "bold"),
        (layout.fit(clean(platform.activity), layout.stage), ""),
    ]
    if counts:
        cells += [
            (layout.bar_of(fraction), style),
            (layout.fit(counts.rjust(layout.counts), layout.counts), ""),
            (layout.fit(_failed(platform), layout.failed), "red"),
        ]
    text = ", ".join(_facts(platform, now)) if layout.has_room else ""
    return layout.line(cells, text, "" if waiting else clock(platform.elapsed(now)))


def _facts(platform: PlatformStatus, now: float) -> list[str]:
    """What is known besides the counts, the most important first."""
    if platform.phase is not Phase.RUNNING:
        return []
    facts = (platform.problem, platform.waits, _estimate(platform, now), _long_step(platform, now))
    later = (platform.device, platform.cache, platform.latest)
    return [shown for it in (*facts, *later) if (shown := clean(it))]


def _details(layout: Layout, platform: PlatformStatus, now: float) -> list[Text]:
    """The second line of a platform on a narrow terminal, if there is something to show."""
    facts = [*filter(None, [_failed(platform)]), *_facts(platform, now)]
    return [_indented(layout, " ", ", ".join(facts), "dim")] if facts else []


def _tail(layout: Layout, platform: PlatformStatus) -> list[Text]:
    lines = map(clean, platform.log_tail[-TAIL:])
    return [_indented(layout, layout.symbols.tail, line, "red") for line in lines]


def _indented(layout: Layout, mark: str, text: str, style: str) -> Text:
    line = layout.fit(f"  {mark} {text}", layout.width - 1)
    return Text(line, style, no_wrap=True, overflow="crop")


def _total(layout: Layout, run: RunStatus, now: float) -> Text:
    done = run.among(Phase.DONE)
    numbers = {
        "done": len(done),
        "failed": sum(it.broken for it in done),
        "running": len(run.among(Phase.RUNNING)),
        "waiting": len(run.among(Phase.WAITING)),
    }
    words = [f"{number} {name}" for name, number in numbers.items() if number]
    words.append(about(run.remaining(now)))
    text = ", ".join(filter(None, words))
    platforms = counted(len(run.platforms), "platform")
    return layout.line([(f"{platforms}:", "bold")], text, clock(now - run.began))
