"""Findings that tests expect: a sentence of the catalogue, and those parameters that are known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ci.facts.sentences.sentence import Sentence
from ci.model.verdicts import Evidence


@dataclass(frozen=True)
class Finding:
    """A sentence with some of its parameters, as JSON has them."""

    sentence: Sentence[Any]
    parameters: dict[str, object]

    def is_in(self, found: Iterable[Evidence]) -> bool:
        """Return whether one of some findings has the sentence and the parameters."""
        return any(
            it.code == self.sentence.code and it.parameters.items() >= self.parameters.items()
            for it in found
        )


def finding(sentence: Sentence[Any], /, **parameters: object) -> Finding:
    """Return a finding of which only these parameters are known."""
    assert {*parameters} <= {*sentence.signature.parameters}
    return Finding(sentence, parameters)
