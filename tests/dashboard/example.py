"""An example store for the tests and the screenshots: a library on seven platforms, always equal.

The generated history of the benchmarks is the base. On it are planted one of each thing that the
dashboard shows: a failing platform, one that timed out, a regression, a smaller suite, an outdated
contract, operators that fall back, and texts that try to be markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.generated_files import write_files
from bench.generated_history import GeneratedRun, Scale, history
from ci.facts.failures import reason_line
from ci.facts.sentences.on_rows import contract_differs, full_suite
from ci.model.details import Details
from ci.model.outcomes import Outcome, TestOutcome
from ci.model.results import Failure, PlatformResult, RunResult
from ci.model.verdicts import Harness, Product
from ci.store.folder import default_url
from ci.store.store import Store
from tests.ci.made_results import made_verdict

RUNS, TESTS = 59, 640
FAILING, TIMED_OUT, SMALLER, OUTDATED = "moore", "ascend", "metax", "cambricon"
FLEET, MACHINES = "iluvatar", ("model A", "model B", "model C")  # on which its runs take turns
SLOWER = ("cpu", "nvidia")  # since the run at this place, by this factor
SLOWER_SINCE, FACTOR = 44, 1.25
FAILING_SINCE = 54
WITH_FILES = 3  # newest runs
MESSAGE = """\
AssertionError: Tensor-likes are not close!

Mismatched elements: 7 / 24 (29.2%)
Greatest absolute difference: 2.0 at index (0, 1) (up to 1e-05 allowed)
</pre><script>bad()</script>"""
ASSERTION = reason_line(MESSAGE)
# Names of tests that a stranger's suite may have.
HOSTILE = (
    "tests/test_markup.py::test_it[<script>document.title='owned'</script>]",
    "tests/test_markup.py::test_it[</script><img src=x onerror=document.title='owned'>]",
    "tests/test_markup.py::test_it[\"' onmouseover=document.title='owned' x='{{ 7*7 }}]",
    "tests/test_markup.py::test_it[\N{RIGHT-TO-LEFT OVERRIDE}txt.exe\N{ZERO WIDTH SPACE}]",
    "tests/test_markup.py::test_it[\x1b[31mred\x1b[0m\u2028]",
)
_NAMES = (
    "abs acos add addcmul addmm all amax angle any argmax asin atan2 baddbmm bitwise_and bmm ceil "
    "clamp copysign cos cross cumsum diag digamma div dot eq erf exp fft_fft fft_ifft floor fmod "
    "gather ge gelu hardswish hypot index_add inverse isin kthvalue le lerp linalg_det linalg_qr "
    "log log1p logit logsumexp lt masked_fill matmul maximum mean median minimum mul nan_to_num ne "
    "neg norm polar pow prod quantile reciprocal relu remainder round rsqrt scatter sigmoid sign "
    "sin sinh softmax sort sqrt square std sub sum take tan tanh topk trace tril trunc var xlogy"
)
_WORDS = _NAMES.split()


def make(folder: Path, *, runs: int = RUNS, tests: int = TESTS) -> list[RunResult]:
    """Save the runs in a store in this folder, and the files of the newest; returns the runs."""
    stored = []
    with Store(default_url(folder)) as store:
        for place, generated in enumerate(history(Scale(runs=runs, tests=tests))):
            run, details = _planted(place, runs, generated)
            store.save(run, details)
            stored.append(run)
            if place >= runs - WITH_FILES:
                write_files(folder, run, details)
    return stored


def _planted(place: int, runs: int, generated: GeneratedRun) -> GeneratedRun:
    run, details = generated
    back = runs - place  # 1 for the newest
    results, kept = [], {}
    for result in run.platforms:
        tests = [_named(test, result.platform) for test in details[result.platform].tests]
        if result.platform == SMALLER and back <= 2:
            tests = tests[: -20 if back == 1 else None]
        if result.platform == FAILING and place >= FAILING_SINCE:
            tests = _failed(tests)
        kept[result.platform] = Details(tests=tests, build=details[result.platform].build)
        results.append(_judged(result, tests, place, back))
    return run.model_copy(update={"platforms": tuple(results)}), kept


def _named(test: TestOutcome, platform: str) -> TestOutcome:
    """Give a test the name of a real operator, a fate by its name, and no chance failure."""
    prefix, _, rest = test.node_id.partition("[operator_")
    number, _, suffix = rest.partition(".out")
    word = _WORDS[int(number) % len(_WORDS)]
    name = f"{prefix}[{word}{'' if int(number) % 3 else '_scalar'}_{number[:2]}.out{suffix}"
    test = replace(test, node_id=name)
    if platform == "iluvatar" and int(number) % 17 == 0:
        return _skipped(test, "not in this torch")
    if platform in ("moore", "cambricon", "ascend") and int(number) % 7 == 1:
        return _skipped(test, "no kernel on this device")
    if platform == "cambricon" and int(number) % 11 == 3:
        return _skipped(test, "dtype unsupported")
    if test.outcome is Outcome.SKIPPED:
        return _skipped(test, "no sample" if int(number) % 2 else "dtype unsupported")
    return replace(test, outcome=Outcome.PASSED, reason=None)


def _skipped(test: TestOutcome, reason: str) -> TestOutcome:
    return replace(test, outcome=Outcome.SKIPPED, reason=f"{reason}: generated", skip_reason=reason)


def _failed(tests: Sequence[TestOutcome]) -> list[TestOutcome]:
    """Let a few tests fail, and add those with hostile names."""
    hostile = [replace(tests[0], node_id=name) for name in HOSTILE]
    changed = [_bad(it) if n % 97 == 5 else it for n, it in enumerate(tests)]
    return [*changed, *map(_bad, hostile)]


def _bad(test: TestOutcome) -> TestOutcome:
    return replace(test, outcome=Outcome.FAILED, reason=MESSAGE, skip_reason=None)


def _judged(
    result: PlatformResult, tests: Sequence[TestOutcome], place: int, back: int
) -> PlatformResult:
    counts = {it: sum(test.outcome is it for test in tests) for it in Outcome}
    names = {"passed": Outcome.PASSED, "failed": Outcome.FAILED, "skipped": Outcome.SKIPPED}
    some = {name: counts[outcome] for name, outcome in names.items()}
    assert result.pytest is not None
    shown = ", ".join(f"{count} {name}" for name, count in some.items() if count)
    summary = f"{shown} in {result.pytest.seconds:.2f}s"
    failed = [test for test in tests if test.outcome is Outcome.FAILED]
    product = Product.FAILED if failed else Product.PASSED
    changes: dict[str, Any] = {
        "pytest": result.pytest.model_copy(update={**some, "summary": summary}),
        "verdict": made_verdict(product, f"pytest: {summary}"),
        "findings": () if failed else (full_suite(),),
        "failures": tuple(
            Failure(stage="pytest", test=it.node_id, outcome=Outcome.FAILED, message=ASSERTION)
            for it in failed
        ),
    }
    if result.platform == OUTDATED and back <= 2:
        update = "python -m ci contract cambricon"
        changes["findings"] = (full_suite(), contract_differs(["16 tests added"], update))
    if result.platform == TIMED_OUT and back == 1:
        text = "stage pytest exceeded its time limit of 600 s"
        changes["verdict"] = made_verdict(Product.INCOMPLETE, text, harness=Harness.TIMED_OUT)
        changes["findings"] = ()
    if result.platform in SLOWER and place >= SLOWER_SINCE:
        changes |= _slower(result)
    if result.platform == FLEET:
        changes |= _on_machine(result, place)
    return result.model_copy(update=changes)


def _on_machine(result: PlatformResult, place: int) -> dict[str, Any]:
    """The result on one of several machines, of which each is slower than the one before."""
    machine = place * 7 % 10 // 4
    facts = {**result.facts("machine"), "cpu_model": MACHINES[machine]}
    return {
        **_slower(result, 1 + 0.3 * machine),
        "environment": {**result.environment, "machine": facts},
    }


def _slower(result: PlatformResult, factor: float = FACTOR) -> dict[str, Any]:
    """A result whose install takes longer."""
    stages = [
        it.model_copy(
            update={
                "seconds": (it.seconds or 0) * factor,
                "cpu_user_s": (it.cpu_user_s or 0) * factor,
            }
        )
        if it.name == "install"
        else it
        for it in result.stages
    ]
    added = sum(it.seconds or 0 for it in stages) - sum(it.seconds or 0 for it in result.stages)
    return {
        "stages": tuple(stages),
        "build_install_s": (result.build_install_s or 0) + added,
        "total_s": (result.total_s or 0) + added,
    }
