"""The results as Markdown: what a release pull request needs."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from ci.report.rows import HEADINGS, STAGE_HEADINGS, build_text, origin, stage_rows, table_rows
from ci.results import PlatformResult, RunResult
from ci.text import printable

# An underscore inside of a word, as most test names have it, marks nothing up.
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])")


def table_markdown(platforms: Sequence[PlatformResult]) -> str:
    """The results table."""
    return table(HEADINGS, table_rows(platforms))


def results_markdown(run: RunResult) -> str:
    """``results.md``: the table, then evidence and stages per platform."""
    parts = [f"# {run.project}: {run.run_id}", origin(run), table_markdown(run.platforms)]
    parts += [_platform(platform) for platform in run.platforms]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _platform(result: PlatformResult) -> str:
    verdict = result.verdict
    lines = [f"## {escape(result.label)}", ""]
    lines += [f"Product: **{verdict.product}**. Harness: **{verdict.harness}**.", ""]
    lines += [f"* {evidence.grade}: {escape(evidence.text)}" for evidence in verdict.evidence]
    lines += ["", table(STAGE_HEADINGS, stage_rows(result))]
    if result.build is not None:
        text = build_text(result.build)
        lines.append(f"{text[0].upper()}{text[1:]}.")
    return "\n".join(lines)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_line(headings), "|" + "---|" * len(headings)]
    lines += [_line([escape(text) for text in row]) for row in rows]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """One line that reads as it is, in a cell too: neither markup nor HTML."""
    line = " ".join(printable(text).split())
    return _MARKUP.sub(r"\\\g<0>", html.escape(line, quote=False))
