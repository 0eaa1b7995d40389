"""Every generated page: ``docs/reference``, the table of faults, and the examples of verdicts.

And the options that shells complete.
"""

from __future__ import annotations

import re
from pathlib import Path

from ci.commands.completion import OPTIONS_FILE
from tests.ci.verdict_examples import examples
from tests.docs import options, reference
from tools.faults import page as faults
from tools.faults.suite import FAULTS

VERDICTS = reference.ROOT / "docs" / "read-a-verdict.md"
EXAMPLE = re.compile(
    r"^<!-- example: (?P<name>[^\n]+?) -->\n```text\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def pages() -> dict[Path, str]:
    """Return the text of each page by its path."""
    return {
        **{reference.FOLDER / name: text for name, text in reference.pages().items()},
        OPTIONS_FILE: options.text(),
        faults.PAGE: faults.as_markdown(fault.row() for fault in FAULTS),
        VERDICTS: with_examples(VERDICTS.read_text(encoding="utf-8")),
    }


def with_examples(page: str) -> str:
    """Return a page whose examples are what the program prints; the rest is written by hand."""
    printed = examples()

    def example(found: re.Match[str]) -> str:
        name = found["name"]
        return f"<!-- example: {name} -->\n```text\n{printed.get(name, found['text'])}```"

    return EXAMPLE.sub(example, page)
