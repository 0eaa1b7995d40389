"""A release validation of 525 operators as one team published it, as results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ci.model.results import PlatformResult, PytestResult, StageResult
from ci.model.verdicts import Harness, Product
from ci.report.document import markdown
from ci.report.table import results_table
from tests.ci.made_results import made_verdict

# Label, passed, skipped, warnings, duration in the summary, seconds of build/install, pytest
# and in total.
PUBLISHED = (
    ("NVIDIA", 9206, 8664, 104, "177.98s (0:02:57)", 889, 182, 1074),
    ("Iluvatar", 7410, 8942, 100, "150.05s (0:02:30)", 629, 153, 783),
    ("MetaX", 8698, 7654, 102, "226.55s (0:03:46)", 1301, 245, 1547),
    ("Cambricon", 5899, 10069, 317, "461.84s (0:07:41)", 2055, 469, 2526),
    ("Moore", 8471, 7899, 119, "237.29s (0:03:57)", 2019, 244, 2263),
    ("Ascend", 7406, 8904, 108, "232.62s (0:03:52)", 1041, 246, 1367),
)


def platform_result(label: str, row: tuple[Any, ...], **changes: Any) -> PlatformResult:
    passed, skipped, warnings, took, build, tests, total = row
    fields: dict[str, Any] = {
        "platform": label.lower(),
        "label": label,
        "built": True,
        "pytest": PytestResult(
            passed=passed,
            failed=0,
            errors=0,
            skipped=skipped,
            xfailed=0,
            xpassed=0,
            warnings=warnings,
            deselected=None,
            seconds=float(took.partition("s")[0]),
            summary=f"{passed} passed, {skipped} skipped, {warnings} warnings in {took}",
        ),
        "stages": (
            StageResult(name="image", seconds=0.4, exit_code=0, in_total=False),
            StageResult(
                name="install",
                seconds=build - 0.25,
                cpu_user_s=3 * build,
                cpu_system_s=11.5,
                peak_rss_bytes=3 * 2**30,
                exit_code=0,
                in_total=True,
            ),
            StageResult(name="pytest", seconds=tests + 0.125, exit_code=0, in_total=True),
        ),
        "build_install_s": build - 0.25,
        "pytest_s": tests + 0.125,
        "total_s": total + 0.0,
        "verdict": made_verdict(Product.PASSED, "pytest ended with status 0"),
        "notes": ("full suite passed",),
        "environment": {"machine": {"cores": 2}, "packages": {"torch": "2.13.0"}},
        "artifacts": {"events.jsonl": f"{label.lower()}/events.jsonl"},
    }
    return PlatformResult(**{**fields, **changes})


def table_markdown(platforms: Sequence[PlatformResult]) -> str:
    """The results table alone, as every page has it."""
    return markdown([[results_table(platforms)]])


def ascend_after_summary(row: tuple[Any, ...]) -> PlatformResult:
    """The published run whose wrapper was killed after pytest's summary."""
    text = "exit code 137 after the pytest summary"
    return platform_result(
        "Ascend",
        row,
        verdict=made_verdict(Product.PASSED, text, harness=Harness.EXIT_AFTER_SUMMARY),
        notes=(
            "Pytest summary passed",
            "outer wrapper returned 137 after the summary",
        ),
    )
