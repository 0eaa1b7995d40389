"""docs/read-a-verdict.md has every value of a verdict, and the exit codes of the program."""

from __future__ import annotations

import re

import pytest

from ci.errors import ExitCode
from ci.gates.rules import exit_code
from ci.model.results import PlatformResult
from ci.model.verdicts import Grade, Harness, Product, Verdict
from tests.ci.published import PUBLISHED, platform_result
from tests.ci.verdict_examples import examples
from tests.docs.pages import EXAMPLE, VERDICTS

PAGE = VERDICTS.read_text(encoding="utf-8")


def test_each_example_is_shown_once() -> None:
    shown = [it["name"] for it in EXAMPLE.finditer(PAGE)]
    assert sorted(shown) == sorted(examples())
    assert len(shown) == PAGE.count("```text\nNotes: ")


@pytest.mark.parametrize("kind", [Product, Harness, Grade])
def test_it_explains_every_value(kind: type[Product | Harness | Grade]) -> None:
    explained = {*re.findall(r"^(?:#+|\|) `(\w+)`", PAGE, re.MULTILINE)}
    assert {value.value for value in kind} <= explained


def result_of(product: Product, harness: Harness) -> PlatformResult:
    verdict = Verdict(product=product, harness=harness, evidence=())
    return platform_result("CPU", PUBLISHED[0][1:], verdict=verdict)


def test_its_exit_codes_are_those_of_the_program() -> None:
    rows = re.findall(r"^\| `?(\w+)`? \| ([^|]+) \| (\d+) \|$", PAGE, re.MULTILINE)
    listed = {
        (product, harness): int(code)
        for product, harnesses, code in rows
        for harness in (re.findall(r"`(\w+)`", harnesses) or [it.value for it in Harness])
    }
    possible = {(p.value, h.value) for p in Product for h in Harness if p is not Product.NOT_RUN}
    possible.add((Product.NOT_RUN.value, Harness.INFRASTRUCTURE.value))
    assert possible <= listed.keys()
    for product, harness in possible:
        given = result_of(Product(product), Harness(harness))
        assert listed[product, harness] == exit_code([given]), (product, harness)
    section = PAGE.partition("## Exit codes\n")[2].partition("\n## ")[0]
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    assert codes == {code.value for code in ExitCode}
