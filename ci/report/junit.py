"""Results as JUnit XML, which Jenkins, GitLab and most other CI systems read.

The elements and attributes are those of the schema of Jenkins' xunit plugin (junit-10.xsd).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ci.facts.suite import Outcomes
from ci.model.details import Rerun
from ci.model.results import PlatformResult, Product, RunResult
from ci.model.tests import Ending, Outcome
from ci.util.text import strip_controls

FAILED = {Outcome.FAILED: "failure", Outcome.ERROR: "error"}
RERUN = {Outcome.FAILED: "rerunFailure", Outcome.ERROR: "rerunError"}
IDLE = (Outcome.SKIPPED, Outcome.XFAILED)


@dataclass(frozen=True, kw_only=True)
class PlatformTests:
    """The tests of a platform, as the store has them."""

    outcomes: Outcomes
    reruns: Sequence[Rerun]

    def reruns_by_test(self) -> dict[str, list[Rerun]]:
        found: dict[str, list[Rerun]] = {}
        for rerun in sorted(self.reruns, key=lambda it: it.attempt):
            found.setdefault(rerun.node_id, []).append(rerun)
        return found

    def proves_failure(self) -> bool:
        return any(ending.state.outcome.bad for ending in self.outcomes.endings)


def unfinished(result: PlatformResult, tests: PlatformTests) -> tuple[str, str] | None:
    """Name and reason of a failure that no test shows, of a platform that did not pass.

    Without it, a platform whose build failed would be an empty report, which passes.
    """
    product = result.verdict.product
    if product is Product.PASSED or tests.proves_failure():
        return None
    lines = [it.message for it in result.failures if it.message]
    lines += [it.text for it in result.verdict.evidence]
    return f"product {product.replace('_', ' ')}", "\n".join(dict.fromkeys(lines))


def junit(run: RunResult, tests: Mapping[str, PlatformTests]) -> str:
    """The JUnit report: a suite for each platform; ``tests`` by platform."""
    root = Element("testsuites")
    counts: Counter[str] = Counter()
    for result in run.platforms:
        counts += _add_suite(root, run, result, tests[result.platform])
    root.attrib |= _texts(name=run.project, **{it: counts[it] for it in _TOTALS})
    indent(root, " ")
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"


_TOTALS = ("tests", "failures", "errors")


def _add_suite(
    root: Element, run: RunResult, result: PlatformResult, tests: PlatformTests
) -> Counter[str]:
    suite = SubElement(root, "testsuite")
    properties = SubElement(suite, "properties")
    known = {"run": run.run_id, "commit": run.commit, "platform": result.label}
    for name, value in known.items():
        SubElement(properties, "property", _texts(name=name, value=value or ""))
    counts: Counter[str] = Counter(dict.fromkeys((*_TOTALS, "skipped"), 0))
    columns = (tests.outcomes.names, tests.outcomes.endings, tests.outcomes.seconds)
    reruns, total = tests.reruns_by_test(), 0.0
    for node_id, ending, seconds in zip(*columns, strict=True):
        _add_case(suite, result, node_id, ending, seconds, reruns.get(node_id, ()))
        outcome, total = ending.state.outcome, total + seconds
        counts["tests"] += 1
        counts["failures"] += outcome is Outcome.FAILED
        counts["errors"] += outcome is Outcome.ERROR
        counts["skipped"] += outcome in IDLE
    if lacking := unfinished(result, tests):
        name, reason = lacking
        case = SubElement(suite, "testcase", _texts(classname=result.platform, name=name))
        _add_message(case, "error", result.verdict.harness, reason)
        counts.update(tests=1, errors=1)
    suite.attrib |= _texts(
        name=f"{run.project}.{result.platform}",
        time=f"{total:.3f}",
        timestamp=f"{run.started_at:%Y-%m-%dT%H:%M:%S}",
        **counts,
    )
    return counts


def _add_case(
    suite: Element,
    result: PlatformResult,
    node_id: str,
    ending: Ending,
    seconds: float,
    reruns: Sequence[Rerun],
) -> None:
    # The platform comes first, since CI systems distinguish tests by the names of class and test.
    path, _, name = node_id.partition("::")
    parts, bracket, parameters = name.partition("[")
    *classes, function = parts.split("::")
    place = [result.platform, *path.removesuffix(".py").split("/"), *classes]
    named = {"classname": ".".join(place), "name": function + bracket + parameters or path}
    case = SubElement(suite, "testcase", _texts(**named, time=f"{seconds:.3f}"))
    outcome, message = ending.state.outcome, ending.message or ""
    if outcome in IDLE:
        kind = "pytest.xfail" if outcome is Outcome.XFAILED else "pytest.skip"
        SubElement(case, "skipped", _texts(type=kind, message=message))
    elif outcome.bad:
        _add_message(case, FAILED[outcome], outcome, message)
    for rerun in reruns:
        if rerun.outcome.bad:
            _add_message(case, RERUN[rerun.outcome], rerun.outcome, rerun.reason or "")
    if reruns:
        attempts = "\n".join(f"rerun {it.attempt}: {it.outcome}" for it in reruns)
        SubElement(case, "system-out").text = attempts


def _add_message(case: Element, kind: str, how: str, message: str) -> None:
    first = message.strip().partition("\n")[0]
    SubElement(case, kind, _texts(type=how, message=first)).text = strip_controls(message)


def _texts(**values: object) -> dict[str, str]:
    """Attributes; XML has no control characters."""
    return {name: strip_controls(str(value)) for name, value in values.items()}
