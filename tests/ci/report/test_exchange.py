"""Results as JUnit and CTRF: valid for readers, and never green where something is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import jsonschema
import pytest

from ci.facts.suite import outcomes_of
from ci.model.details import Rerun
from ci.model.outcomes import Outcome, TestOutcome
from ci.model.results import Failure, RunResult
from ci.model.verdicts import Product
from ci.report.exchange import PlatformTests, ctrf, junit
from tests.ci.made_results import made_test, made_verdict

# The rules of junit-10.xsd of Jenkins' xunit plugin: attributes with whether they are required, and
# the elements inside. The text of `time` is limited for suites only.
TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")
MESSAGE = {"type": False, "message": False}
RERUN = {"message": False, "type": True}
OUTPUTS = ("stackTrace", "system-out", "system-err")
RULES: Mapping[str, tuple[Mapping[str, bool], Sequence[str]]] = {
    "testsuites": (
        dict.fromkeys(("name", "time", "tests", "failures", "errors"), False),
        ("testsuite",),
    ),
    "testsuite": (
        dict.fromkeys(("name", "tests", "failures", "errors"), True)
        | dict.fromkeys(("group", "time", "skipped", "timestamp", "hostname", "id"), False)
        | dict.fromkeys(("package", "file", "log", "url"), False),
        ("testsuite", "properties", "testcase", "system-out", "system-err"),
    ),
    "properties": ({}, ("property",)),
    "property": ({"name": True, "value": True}, ()),
    "testcase": (
        {"name": True, "time": False, "classname": False, "group": False},
        (
            *("skipped", "error", "failure", "rerunFailure", "rerunError"),
            *("flakyFailure", "flakyError", "system-out", "system-err"),
        ),
    ),
    **dict.fromkeys(("skipped", "error", "failure"), (MESSAGE, ())),
    **dict.fromkeys(("rerunFailure", "rerunError", "flakyFailure", "flakyError"), (RERUN, OUTPUTS)),
    **dict.fromkeys(OUTPUTS, ({}, ())),
}
MIXED = {"skipped", "error", "failure", "property", *OUTPUTS} | {
    name for name in RULES if name.startswith(("rerun", "flaky"))
}


def parsed(text: str) -> Element:
    return fromstring(text)  # noqa: S314 - written by the test


def check_junit(element: Element) -> None:
    """Check an element by the schema's rules."""
    attributes, inside = RULES[element.tag]
    assert set(element.attrib) <= set(attributes), element.tag
    assert {name for name, needed in attributes.items() if needed} <= set(element.attrib)
    if element.tag.startswith("testsuite") and "time" in element.attrib:
        assert TIME.fullmatch(element.attrib["time"])
    if element.tag not in MIXED:
        assert not (element.text or "").strip()
    for child in element:
        assert child.tag in inside, f"{child.tag} in {element.tag}"
        assert not (child.tail or "").strip() or element.tag in MIXED
        check_junit(child)


# The rules of CTRF's specification (https://ctrf.io/docs/specification/root).
STATUS = {"enum": ["passed", "failed", "skipped", "pending", "other"]}
TEXT, WHOLE, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}


def closed(required: Mapping[str, Any], optional: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [*required],
        "properties": {**required, **optional},
    }


COUNTS = ("tests", "passed", "failed", "skipped", "pending", "other", "start", "stop")
ATTEMPT = closed(
    {"attempt": {"type": "integer", "minimum": 1}, "status": STATUS},
    {"duration": {"type": "integer", "minimum": 0}, "message": TEXT},
)
TEST = closed(
    {"name": TEXT, "status": STATUS, "duration": WHOLE},
    {
        **dict.fromkeys(("message", "trace", "rawStatus", "filePath", "device"), TEXT),
        "suite": {**TEXTS, "minItems": 1},
        "retries": {"type": "integer", "minimum": 0},
        "retryAttempts": {"type": "array", "items": ATTEMPT},
        "flaky": FLAG,
    },
)
ENVIRONMENT = ("appName", "buildName", "commit", "branchName", "testEnvironment")
CTRF = closed(
    {
        "reportFormat": {"const": "CTRF"},
        "specVersion": {"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$"},
        "results": closed(
            {
                "tool": closed({"name": TEXT}, {"version": TEXT}),
                "summary": closed(dict.fromkeys(COUNTS, WHOLE), {"flaky": WHOLE, "suites": WHOLE}),
                "tests": {"type": "array", "items": TEST},
            },
            {"environment": closed({}, dict.fromkeys(ENVIRONMENT, TEXT))},
        ),
    },
    {"timestamp": TEXT, "generatedBy": TEXT},
)

HOSTILE = "t.py::test[]]></testsuite><!--&\x00\x1b[31m\ud800\ufffe\u202e]"
TESTS = [
    made_test(name, outcome, seconds=seconds, reason=reason)
    for name, outcome, seconds, reason in (
        ("tests/ops/test_a.py::TestC::test_one[a.b::c/d]", Outcome.PASSED, 1234.5678, None),
        ("tests/ops/test_a.py::test_two", Outcome.FAILED, 0.5, "assert 1 == 2\nmore"),
        ("tests/ops/test_a.py::test_three", Outcome.SKIPPED, 0.0, "no device"),
        ("tests/ops/test_a.py::test_four", Outcome.XFAILED, 0.0, "known"),
        ("tests/ops/test_a.py::test_five", Outcome.XPASSED, 0.0, None),
        ("tests/ops/test_broken.py", Outcome.ERROR, 0.0, "SyntaxError: no"),
        (HOSTILE, Outcome.FAILED, 0.0, HOSTILE),
    )
]
RERUNS = [
    Rerun(node_id=TESTS[1].node_id, attempt=2, outcome=Outcome.PASSED, seconds=0.25),
    Rerun(
        node_id=TESTS[1].node_id, attempt=1, outcome=Outcome.FAILED, seconds=0.5, reason="assert 0"
    ),
    Rerun(node_id=HOSTILE, attempt=1, outcome=Outcome.ERROR, seconds=0.0, reason=HOSTILE),
]


def judged(run: RunResult, product: Product) -> RunResult:
    """The first two platforms of a run, the first of which has this verdict."""
    verdict = made_verdict(product, "stage install failed")
    first = run.platforms[0].model_copy(update={"verdict": verdict})
    return run.model_copy(update={"platforms": (first, run.platforms[1])})


def suites_of(tests: Sequence[TestOutcome] = TESTS) -> list[PlatformTests]:
    passed = [it for it in TESTS if not it.outcome.bad]
    return [
        PlatformTests(outcomes=outcomes_of(tests), reruns=RERUNS),
        PlatformTests(outcomes=outcomes_of(passed), reruns=()),
    ]


def test_junit_has_every_test_of_every_platform(published: RunResult) -> None:
    run = judged(published, Product.FAILED)
    root = parsed(junit(run, suites_of()))
    check_junit(root)
    first, second = root
    assert (first.get("name"), second.get("name")) == ("infini-ops.nvidia", "infini-ops.iluvatar")
    counts = {"tests": "7", "failures": "2", "errors": "1", "skipped": "2"}
    assert counts.items() <= first.attrib.items()
    assert root.attrib == {"name": "infini-ops", "tests": "11", "failures": "2", "errors": "1"}
    assert first.get("time") == "1235.068"
    cases = first.findall("testcase")
    assert [(it.get("classname"), it.get("name")) for it in cases[:2]] == [
        ("nvidia.tests.ops.test_a.TestC", "test_one[a.b::c/d]"),
        ("nvidia.tests.ops.test_a", "test_two"),
    ]
    assert [[child.tag for child in it] for it in cases] == [
        [],
        ["failure", "rerunFailure", "system-out"],
        ["skipped"],
        ["skipped"],
        [],
        ["error"],
        ["failure", "rerunError", "system-out"],
    ]
    failure = cases[1].find("failure")
    assert failure is not None
    assert failure.attrib == {"type": "failed", "message": "assert 1 == 2"}
    assert failure.text == "assert 1 == 2\nmore"
    assert cases[1].findtext("system-out") == "rerun 1: failed\nrerun 2: passed"
    assert cases[5].get("name") == "tests/ops/test_broken.py"


def test_ctrf_has_every_test_with_its_reruns(published: RunResult) -> None:
    run = judged(published, Product.FAILED)
    document = json.loads(ctrf(run, suites_of()))
    jsonschema.validate(document, CTRF)
    results = document["results"]
    assert results["summary"] == {
        "tests": 11,
        "passed": 4,
        "failed": 3,
        "skipped": 2,
        "pending": 0,
        "other": 2,
        "flaky": 1,
        "suites": 2,
        "start": 1767268800000,
        "stop": 1767274200250,
    }
    one, two, *_, hostile = results["tests"][:7]
    assert (one["duration"], one["suite"]) == (
        1234568,
        ["infini-ops on NVIDIA", "tests/ops/test_a.py"],
    )
    assert (two["status"], two["flaky"], two["retries"]) == ("failed", True, 2)
    assert [it["status"] for it in two["retryAttempts"]] == ["failed", "passed"]
    assert hostile["flaky"] is False
    raw = [it["rawStatus"] for it in results["tests"][:7]]
    assert raw == [it.outcome.value for it in TESTS]


@pytest.mark.parametrize("product", [Product.FAILED, Product.INCOMPLETE, Product.NOT_RUN])
def test_a_platform_without_a_failed_test_is_not_green(
    published: RunResult, product: Product
) -> None:
    run = judged(published, product)
    failure = Failure(
        stage="install", test=None, outcome=Outcome.FAILED, message="a.cc:1: error: b"
    )
    first = run.platforms[0].model_copy(update={"failures": (failure,)})
    run = run.model_copy(update={"platforms": (first, run.platforms[1])})
    tests = suites_of(TESTS[:1])
    root = parsed(junit(run, tests))
    check_junit(root)
    assert (root.get("tests"), root.get("errors")) == ("6", "1")
    last = root[0].findall("testcase")[-1]
    assert last.get("name") == f"product {product.replace('_', ' ')}"
    assert last.findtext("error") == "a.cc:1: error: b\nstage install failed"
    document = json.loads(ctrf(run, tests))
    jsonschema.validate(document, CTRF)
    assert document["results"]["summary"]["failed"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<testsuites skipped='1'/>", "testsuites"),
        ("<testsuites><testsuite name='a' tests='1' failures='0'/></testsuites>", "errors"),
        ("<testsuites><testcase name='a'/></testsuites>", "testcase in testsuites"),
    ],
)
def test_the_rules_refuse_other_documents(text: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_junit(parsed(text))
