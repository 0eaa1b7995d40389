"""What the time of a run's tests went into: in a terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console

from ci.analysis.durations import Costs, Share
from ci.facts.measures import percent
from ci.report.console import say, text_table
from ci.report.table import escape, table
from ci.util.text import counted

SCHEMA_VERSION = 1
HEADINGS = ("Tests", "Seconds", "Share", "Name")


def print_expensive(costs: Mapping[str, Costs], most: int, console: Console) -> None:
    """``costs`` by the platform's title; ``most`` lines of each list."""
    for platform, cost in costs.items():
        say(console, _headline(platform, cost), style="bold")
        for title, shares in _lists(cost):
            say(console, "", _title(title, cost, shares, most))
            console.print(text_table(HEADINGS, _rows(cost, shares, most), numbers=HEADINGS[:-1]))
        console.print()


def expensive_markdown(costs: Mapping[str, Costs], most: int) -> str:
    parts = []
    for platform, cost in costs.items():
        parts.append(f"## {escape(_headline(platform, cost))}")
        for title, shares in _lists(cost):
            parts.append(f"### {_title(title, cost, shares, most)}")
            parts.append(table(HEADINGS, _rows(cost, shares, most)).rstrip())
    return "\n\n".join(parts) + "\n"


def expensive_json(costs: Mapping[str, Costs], most: int) -> str:
    platforms = {
        platform: {
            "tests": len(cost.tests),
            "seconds": cost.seconds,
            **{
                key: [share._asdict() for share in shares[:most]]
                for key, shares in (
                    ("slowest", cost.tests),
                    ("functions", cost.functions),
                    ("families", cost.families),
                )
            },
        }
        for platform, cost in costs.items()
    }
    document = {"schema_version": SCHEMA_VERSION, "platforms": platforms}
    return json.dumps(document, indent=2) + "\n"


def _headline(platform: str, cost: Costs) -> str:
    return f"{platform}: {counted(len(cost.tests), 'test')} took {cost.seconds:,.1f} s in all"


def _lists(cost: Costs) -> Iterator[tuple[str, Sequence[Share]]]:
    yield "tests", cost.tests
    yield "operators and functions", cost.functions
    yield "families", cost.families


def _title(what: str, cost: Costs, shares: Sequence[Share], most: int) -> str:
    shown = shares[:most]
    seconds = sum(share.seconds for share in shown)
    return (
        f"The most expensive {what}: {len(shown):,} of {len(shares):,} took {seconds:,.1f} s"
        f" ({percent(cost.share(shown))})"
    )


def _rows(cost: Costs, shares: Sequence[Share], most: int) -> list[tuple[str, ...]]:
    return [
        (
            f"{share.tests:,}",
            f"{share.seconds:,.2f}",
            percent(cost.share([share])),
            share.name,
        )
        for share in shares[:most]
    ]
