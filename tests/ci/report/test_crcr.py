"""What PyTorch's CI relay gets: who has to act, within the limits of the relay."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.analysis.flaky import FlakyEvidence, FlakyTest
from ci.analysis.triage import PassedRun, TriageCategory, TriageFacts
from ci.facts.environment_key import ComponentChange
from ci.facts.sentences.on_stages import PENDING
from ci.facts.suite import outcomes_of
from ci.facts.verdict import judge, not_run
from ci.model.details import Rerun
from ci.model.outcomes import Outcome, TestOutcome
from ci.model.results import RunResult
from ci.model.verdicts import Evidence, Grade, Harness, Product, Verdict
from ci.report import crcr as relay
from ci.report.crcr import RelayRow, crcr, cut
from tests.ci import operator_log
from tests.ci.judged_runs import ADD, MUL, contract, ended, operators
from tests.ci.made_results import made_test, made_verdict
from tests.ci.published import PUBLISHED, platform_result
from tests.ci.review import check_golden
from tests.ci.verdict_examples import EXAMPLES, NO_IMAGE

GOLDEN = Path(__file__).parent / "golden" / "crcr.txt"
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
FAILED = made_test("t.py::test_forward", Outcome.FAILED, reason="assert 1 == 2")
BAD = made_verdict(Product.FAILED, "1 failed: t.py::test_forward")


def row(
    verdict: Verdict,
    *tests: TestOutcome,
    label: str = "CPU",
    reruns: Sequence[Rerun] = (),
    **facts: Any,
) -> RelayRow:
    outcomes = outcomes_of(tests)
    result = platform_result(label, PUBLISHED[0][1:], verdict=verdict)
    assert result.pytest is not None
    failed = sum(test.outcome.bad for test in tests)
    counts = {"passed": len(tests) - failed, "failed": failed, "skipped": 0}
    suite = result.pytest.model_copy(update=counts) if tests else None
    result = result.model_copy(update={"pytest": suite})
    facts = {"result": result, "failures": outcomes.failures, **facts}
    return RelayRow(facts=TriageFacts(**facts), outcomes=outcomes, reruns=reruns)


def document(*rows: RelayRow) -> dict[str, Any]:
    run = RunResult(
        run_id="20260101T120000Z-0123abcd-00ff",
        project="example",
        commit=None,
        dirty=False,
        started_at=MOMENT,
        finished_at=MOMENT,
        engine="docker",
        platforms=tuple(it.facts.result for it in rows),
    )
    text = crcr(run, rows)
    assert text.count("\n") == 1  # the output of a step of a workflow has one line
    found: dict[str, Any] = json.loads(text)
    check(found)
    return found


def verdict_of(*rows: RelayRow) -> dict[str, Any]:
    found: dict[str, Any] = document(*rows)["triage-verdict"]
    return found


LAYOUT = str.maketrans("", "", "\n\t")
TEXTS = {"job": 200, "test": 200, "excerpt": 1000}
CATEGORIES = ("upstream", "backend", "infra", "flake", "unknown")


def check(found: Mapping[str, Any]) -> None:
    """The rules by which the relay drops a whole verdict or cuts a text."""
    assert found["conclusion"] in ("success", "failure")
    tests = found["failed-tests-detail"]
    assert len(tests) <= 1000
    assert len(json.dumps(tests)) < 128 * 1024 - len("FAILED_TESTS_DETAIL=") - 1
    for test in tests:
        assert test["name"]
        assert len(test.get("message", "")) <= 1024
    verdict = found.get("triage-verdict")
    assert (verdict is None) is (found["conclusion"] == "success")
    if verdict is None:
        return
    assert len(json.dumps(verdict).encode()) <= 16 * 1024
    assert verdict["schema_version"] == 1
    assert verdict["category"] in CATEGORIES
    assert verdict["confidence"] in ("high", "medium", "low")
    assert 0 < len(verdict["summary"].strip()) <= 1000
    assert verdict["summary"].isprintable()
    assert len(verdict["evidence"]) <= 10
    for entry in verdict["evidence"]:
        assert entry.keys() <= TEXTS.keys()
        for name, text in entry.items():
            assert 0 < len(text.strip()) <= TEXTS[name]
            assert text.translate(LAYOUT).isprintable()
    if suspected := verdict.get("suspected_upstream"):
        assert verdict["category"] == "upstream"
        assert re.fullmatch("[0-9a-f]{7,40}", suspected["commit"])
    datetime.fromisoformat(verdict["analyzed_at"])


def flaky(*names: str) -> list[FlakyTest]:
    evidence = FlakyEvidence(commit="a" * 40, key="k", failed=1, tried=4)
    return [FlakyTest(node_id=name, evidence=(evidence,)) for name in names]


def passed(*changes: str, same_commit: bool) -> PassedRun:
    """An earlier run, since which these components changed."""
    versions = {"torch": ("torch 2.13.0", "torch 2.14.0a0+git0e797b5a6acf")}
    return PassedRun(
        run_id="20251231T120000Z-0123abcd-0001",
        same_commit=same_commit,
        changes=[ComponentChange(it, *versions.get(it, ("one", "another"))) for it in changes],
    )


REFUSED = operator_log.lines("mul.out", "skipped", executed=0, reason="torch refuses")
SKIPPED = operator_log.lines("mul.out", "skipped", executed=0, reason="no sample")


def of_log(case: Any, **facts: Any) -> RelayRow:
    tests = case.tests.tests if case.tests else ()
    return row(judge(case), *tests, **facts)


@cache
def golden_rows() -> dict[str, list[RelayRow]]:
    found = {name: [of_log(case)] for name, case in EXAMPLES.items()}
    found["no image"] = [row(not_run(NO_IMAGE))]
    found["no result yet"] = [row(not_run(PENDING))]
    found["torch refuses"] = [of_log(ended(operators(ADD, REFUSED), contract=contract(ADD, MUL)))]
    refused_beside = operators(ADD, REFUSED, operator_log.lines("sub.out", "skipped", executed=0))
    expected = contract(ADD, MUL, operator_log.lines("sub.out"))
    found["torch refuses, and more"] = [of_log(ended(refused_beside, contract=expected))]
    failed = EXAMPLES["tests failed"]
    assert failed.tests is not None
    names = [test.node_id for test in failed.tests.tests if test.outcome.bad]
    found["flaky"] = [of_log(failed, flaky=flaky(*names), commit="a" * 40)]
    found["flaky at another commit"] = [of_log(failed, flaky=flaky(*names), commit="b" * 40)]
    again = [Rerun(node_id=names[0], attempt=1, outcome=Outcome.FAILED, seconds=0.1)]
    found["failed again"] = [of_log(failed, reruns=again)]
    found["another torch"] = [of_log(failed, passed=passed("torch", "cache", same_commit=True))]
    in_image = passed("torch", "image", same_commit=True)
    found["a build with another torch"] = [of_log(EXAMPLES["build failed"], passed=in_image)]
    found["another commit"] = [of_log(failed, passed=passed("cache", same_commit=False))]
    found["another machine"] = [of_log(failed, passed=passed("torch", "machine", same_commit=True))]
    found["three platforms"] = [
        of_log(EXAMPLES["passed"], label="CPU"),
        of_log(EXAMPLES["lost"], label="NVIDIA"),
        of_log(failed, label="Ascend"),
    ]
    return found


def test_golden() -> None:
    texts = {
        name: json.dumps(document(*rows), indent=1, ensure_ascii=False)
        for name, rows in golden_rows().items()
    }
    check_golden(GOLDEN, texts)


@pytest.mark.parametrize(
    ("name", "category"),
    {
        "tests failed": "backend",
        "build failed": "backend",
        "a contract": "backend",
        "the limit": "backend",
        "the machine's memory": "infra",
        "lost": "infra",
        "no image": "infra",
        "killed": "infra",
        "too long": "unknown",
        "no result yet": "unknown",
        "torch refuses": "upstream",
        "torch refuses, and more": "backend",
        "another torch": "upstream",
        "another machine": "backend",
        "flaky": "flake",
        "three platforms": "backend",
    }.items(),
)
def test_who_has_to_act(name: str, category: str) -> None:
    assert verdict_of(*golden_rows()[name])["category"] == category


def test_a_flaky_test_beside_a_broken_one_is_no_flake() -> None:
    other = replace(FAILED, node_id="t.py::test_backward")
    found = verdict_of(row(BAD, FAILED, other, flaky=flaky(other.node_id)))
    assert found["category"] == "backend"


def test_flaky_tests_do_not_explain_other_evidence() -> None:
    found = verdict_of(row(BAD, FAILED, flaky=flaky(FAILED.node_id)))  # evidence without a code
    assert found["category"] == "backend"


@pytest.mark.parametrize("version", ["torch none", "torch 2.14.0"])
def test_a_torch_that_is_not_known_is_not_blamed(version: str) -> None:
    before = replace(
        passed("torch", same_commit=True),
        changes=[ComponentChange("torch", "torch 2.13.0", version)],
    )
    found = verdict_of(row(BAD, FAILED, passed=before))
    assert (found["category"] == "upstream") is (version != "torch none")
    assert "suspected_upstream" not in found  # of no known commit


def test_a_rerun_that_passed_was_not_reproduced() -> None:
    again = Rerun(node_id=FAILED.node_id, attempt=1, outcome=Outcome.PASSED, seconds=0.1)
    assert verdict_of(row(BAD, FAILED, reruns=[again]))["reproduced_on_retry"] is False


def many(count: int, message: str) -> list[TestOutcome]:
    names = (f"t.py::test_{'x' * 60}[{i}]" for i in range(count))
    return [replace(FAILED, node_id=name, reason=message) for name in names]


def test_of_5000_failures_those_that_are_not_flaky_come_first() -> None:
    tests = many(5000, "assert 1 == 2")
    found = document(row(BAD, *tests, flaky=flaky(*(it.node_id for it in tests[:4990]))))
    listed = found["failed-tests-detail"]
    assert [it["name"] for it in listed[:10]] == [it.node_id for it in tests[4990:]]
    left_out = 5000 - len(listed)
    assert f"{left_out:,} failed tests not listed" in found["triage-verdict"]["summary"]
    assert found["test-results"] == {"passed": 0, "failed": 5000, "skipped": 0, "total": 5000}
    assert len(listed) > 500


def test_messages_are_cut_before_tests_are() -> None:
    listed = document(row(BAD, *many(400, "y" * 5000)))["failed-tests-detail"]
    assert len(listed) == 400
    assert {len(it["message"]) for it in listed} == {64}


def test_megabytes_of_control_characters() -> None:
    text = "\x1b[2J\x00\u202e\ud83d\n" * 200_000
    evidence = Evidence(grade=Grade.FACT, text=text)
    verdict = Verdict(product=Product.FAILED, harness=Harness.CLEAN, evidence=(evidence,) * 30)
    found = verdict_of(row(verdict, replace(FAILED, reason=text)))
    assert found["summary"].endswith("[21 pieces of evidence left out]")


def test_secrets_are_masked_before_a_text_is_cut() -> None:
    secret = "https://user:" + "p" * 2000 + "@host"
    found = verdict_of(row(BAD, replace(FAILED, reason=f"cannot fetch {secret}")))
    assert "ppp" not in json.dumps(found)


TEXT = st.text(max_size=60).map(lambda text: text * 40)
TESTS = st.builds(
    lambda name, reason: replace(FAILED, node_id=f"t.py::{name}", reason=reason),
    st.text(max_size=20),
    TEXT,
)
EVIDENCE = st.builds(Evidence, grade=st.sampled_from(Grade), text=TEXT)
VERDICTS = st.builds(
    Verdict,
    product=st.sampled_from(Product),
    harness=st.sampled_from(Harness),
    evidence=st.lists(EVIDENCE, max_size=15).map(tuple),
)
ROWS = st.builds(
    lambda verdict, tests, label: row(verdict, *tests, label=label),
    VERDICTS,
    st.lists(TESTS, max_size=15, unique_by=lambda test: test.node_id),
    st.sampled_from(["CPU", "Ä" * 64]),
)


@settings(max_examples=40)
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_any_result_is_within_the_limits(rows: list[RelayRow]) -> None:
    assert document(*rows).keys() >= {"conclusion", "test-results"}


@given(st.text(), st.integers(min_value=3, max_value=50))
def test_a_cut_text_has_the_begin_of_it(text: str, most: int) -> None:
    found = cut(text, most)
    assert len(json.dumps(found)) - 2 <= most
    assert found == cut(found, most)  # what fits stays


def test_the_largest_verdict_is_within_the_limit() -> None:
    """The limits of the parts add up to less than that of the whole."""
    entry = {name: "x" * most for name, most in (("job", 200), ("test", 200), ("excerpt", 950))}
    assert (relay.LONGEST_NAME, relay.LONGEST_EXCERPT) == (200, 950)
    largest = {
        "schema_version": 1,
        "category": "upstream",
        "confidence": "medium",
        "summary": "x" * relay.LONGEST_SUMMARY,
        "suspected_upstream": {"commit": "a" * 40, "reason": "x" * relay.LONGEST_REASON},
        "evidence": [entry] * relay.MOST_EVIDENCE,
        "reproduced_on_retry": False,
        "analyzer": {"name": relay.ANALYZER},
        "analyzed_at": MOMENT.isoformat(),
    }
    assert len(json.dumps(largest)) <= relay.LARGEST_VERDICT


def test_the_categories_are_those_of_the_relay() -> None:
    assert sorted(TriageCategory) == sorted(CATEGORIES)
