"""Evidence and notes are values: codes with parameters, from which the sentences are made."""

from __future__ import annotations

import json

import pytest

from ci.facts.sentences import SENTENCES
from ci.facts.sentences.on_rows import full_suite, reported
from ci.facts.sentences.on_tests import failed_tests, running_tests
from ci.facts.sentences.sentence import MOST_LISTED
from ci.model.verdicts import Evidence, Grade
from tests.docs.findings import examples

EXAMPLES = {example.code: (example, meaning) for example, meaning in examples()}


@pytest.mark.parametrize("code", SENTENCES)
def test_the_parameters_alone_make_the_text_again(code: str) -> None:
    example, meaning = EXAMPLES[code]
    read = Evidence.model_validate(json.loads(example.model_dump_json()))
    assert read == example
    assert SENTENCES[code].reworded(read) == example.text
    assert meaning


def test_lists_among_the_parameters_are_cut() -> None:
    found = running_tests([f"t.py::test_{n}" for n in range(1000)])
    listed = found.parameters["tests"]
    assert isinstance(listed, list)
    assert len(listed) == MOST_LISTED
    assert found.text.endswith("t.py::test_4 and 995 more")


def test_a_sentence_is_reworded_only_if_it_wrote_the_text() -> None:
    found = failed_tests(2, 0, 0, ["t.py::test_a"])
    assert failed_tests.reworded(found, tests=[]) == failed_tests(2, 0, 0, []).text
    assert full_suite.reworded(found) is None
    assert failed_tests.reworded(Evidence(grade=Grade.FACT, text=found.text)) is None
    for forged in ({}, {"failed": "x"}, {**found.parameters, "more": 1}, {"failed": None}):
        assert failed_tests.reworded(found.model_copy(update={"parameters": forged})) is None


def test_codes_are_words_of_lowercase_letters() -> None:
    assert reported("x").code == "reported"
    assert all(code == code.lower() and code.replace("-", "").isalpha() for code in SENTENCES)
