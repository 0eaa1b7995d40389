"""``history PLATFORM --flaky``: the tests with evidence of being flaky, from the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ci.analysis.flaky import Attempts, Flaky, flaky_tests
from ci.report.markdown import escape
from ci.text import counted, printable

if TYPE_CHECKING:
    from ci.analysis.outcomes import Outcomes
    from ci.store.rows import SameEnvironment
    from ci.store.store import Store

SCHEMA_VERSION = 1
LINES = 20
GROUPS = 25  # of runs of one commit and environment: the newest ones; 0.1 s of a comparison
ADVICE = (
    "a flaky test needs mending; until then a quarantine can hold it, with a reference to the"
    " defect, where the suite has one (as tests/ops has: quarantine.yaml)"
)


def stored_flaky(
    store: Store, platform: str, project: str, *, tests: Collection[str] | None = None
) -> list[Flaky]:
    """Look at the commits of which the store cannot tell that all attempts ended alike.

    ``tests``: at these alone.
    """
    return flaky_tests(_attempts(store, platform, project, tests))


def _attempts(
    store: Store, platform: str, project: str, tests: Collection[str] | None
) -> Iterator[Attempts]:
    groups = store.same_environment(platform, project=project)
    newest = [group for group in groups if group.differing or group.rerun][-GROUPS:]
    outcomes = _outcomes(store, platform, newest, tests)
    for group in newest:
        reruns = [rerun for run in group.rerun for rerun in store.reruns(run, platform)]
        yield Attempts(
            commit=group.commit,
            key=group.key,
            runs=[outcomes(run_id) for run_id in group.run_ids],
            reruns=[rerun for rerun in reruns if tests is None or rerun.node_id in tests],
        )


def _outcomes(
    store: Store,
    platform: str,
    groups: Sequence[SameEnvironment],
    tests: Collection[str] | None,
) -> Callable[[str], Outcomes]:
    if tests is None:
        return lambda run_id: store.outcomes(run_id, platform)
    run_ids = [run_id for group in groups for run_id in group.run_ids]
    return store.outcomes_of_some(tests, run_ids, platform).__getitem__


def flaky_text(platform: str, found: Sequence[Flaky]) -> str:
    lines = [f"{platform}: {_headline(found)}", *(f"  {line}" for line in _lines(found))]
    return printable("\n".join([*lines, *([ADVICE] if found else [])])) + "\n"


def flaky_markdown(platform: str, found: Sequence[Flaky]) -> str:
    lines = [f"### {escape(platform)}: {_headline(found)}", ""]
    lines += [*(f"* {escape(line)}" for line in _lines(found)), ""]
    return "\n".join([*lines, *([escape(ADVICE)] if found else [])]).rstrip() + "\n"


def flaky_json(platform: str, found: Sequence[Flaky]) -> str:
    """Everything, test by test."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "platform": platform,
        "tests": [*map(_test, found)],
    }
    return json.dumps(document, indent=2) + "\n"


def _headline(found: Sequence[Flaky]) -> str:
    if not found:
        return "no test both passed and failed at one commit in one environment"
    return f"{counted(len(found), 'test')} both passed and failed at one commit in one environment"


def _lines(found: Sequence[Flaky]) -> Iterator[str]:
    for test in found[:LINES]:
        yield f"{test.node_id}: {test}"
    if len(found) > LINES:
        yield f"and {counted(len(found) - LINES, 'test')} more"


def _test(test: Flaky) -> dict[str, object]:
    low, high = test.interval
    evidence = [
        {"commit": it.commit, "environment": it.key, "failed": it.failed, "tried": it.tried}
        for it in test.evidence
    ]
    counts = {"failed": test.failed, "tried": test.tried, "rate": test.failed / test.tried}
    return {"test": test.node_id, **counts, "interval": [low, high], "evidence": evidence}
