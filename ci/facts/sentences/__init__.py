"""Every sentence of a verdict, and every note of a row: once, with its code and its parameters.

A sentence is called with its parameters and returns ``Evidence`` that has its code, its grade, the
parameters and the text. Decide by the code, as in ``it.code == no_contract.code``, never by the
text. Each docstring says what the sentence means or what to do: ``docs/reference/findings.md`` is
generated from them.
"""

from __future__ import annotations

from typing import Any

from ci.facts.sentences import on_artifacts, on_harness, on_rows, on_stages, on_tests
from ci.facts.sentences.sentence import Sentence

SENTENCES: dict[str, Sentence[Any]] = {
    it.code: it
    for module in (on_stages, on_tests, on_harness, on_artifacts, on_rows)
    for it in vars(module).values()
    if isinstance(it, Sentence)
}
