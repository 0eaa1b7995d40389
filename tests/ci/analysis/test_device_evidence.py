"""What counts as evidence against a device, and what does not."""

from __future__ import annotations

import pytest

from ci.analysis.bad_devices import PROCESS, DeviceUse, find_bad_devices

TEST = "test_it.py::test_sum"
PASS = frozenset({TEST, PROCESS})


def uses(*runs: str, kind: str = "a card") -> list[DeviceUse]:
    """Runs as ``A-0!test``: at commit A, on device 0, in which the test failed.

    ``A-0`` passed, and in ``A-0!process`` the process died. Without a number, no device is known.
    """
    found = []
    for number, run in enumerate(runs):
        place, _, failure = run.partition("!")
        commit, _, device = place.partition("-")
        failed = {"test": {TEST}, "process": {PROCESS, TEST}}.get(failure, set())
        use = DeviceUse(
            run_id=f"run-{number}",
            commit=commit,
            kind=kind,
            devices=frozenset({f"GPU-{it}" for it in device.split("+") if it}),
            failed=frozenset(failed),
            passed=PASS - failed if not failure or failure == "test" else frozenset(),
        )
        found.append(use)
    return found


@pytest.mark.parametrize(
    ("runs", "bad"),
    [
        (["A-0!process", "A-0!process", "A-1", "A-1"], {"GPU-0"}),
        (["A-0!process", "B-0!process", "A-1", "B-1"], {"GPU-0"}),
        (["A-0!process", "A-1", "A-1"], set()),  # once may be chance
        (["A-0!process", "A-0!process", "A-1"], set()),
        (["A-0!process", "A-0!process", "B-1", "B-1"], set()),  # at another commit
        # Siblings that fail, too: it is the tests.
        (["A-0!process", "A-0!process", "A-1!process", "A-1", "A-2"], set()),
        (["A-0!process", "A-0!process", "A-0", "A-0", "A-0", "A-1", "A-1"], set()),
        (["A-0!test", "A-0!test", "A-1", "A-1"], set()),  # a test may be flaky
        (["A-0!test", "A-0!test", "A-0!test", "A-1", "A-1"], {"GPU-0"}),
        # Only the device that is in all of the failures.
        (["A-0+1!process", "A-0+2!process", "A-1+2", "A-1+3", "A-2+3"], {"GPU-0"}),
        # No device is known to have run it: a witness, not evidence.
        (["A-0!process", "A-0!process", "A-", "A-", "A-1"], {"GPU-0"}),
        (["A-0!process", "A-0!process", "A-!process", "A-1", "A-1"], set()),
        # With no sibling that works, it is the machine.
        (["A-0!process", "A-0!process", "A-", "A-"], set()),
    ],
)
def test_evidence(runs: list[str], bad: set[str]) -> None:
    assert {it.uuid for it in find_bad_devices(uses(*runs))} == bad


def test_the_reason_names_the_runs() -> None:
    [found] = find_bad_devices(uses("A-0!process", "A-0!process", "A-1", "A-1"))
    assert found.reason == (
        "its process died or hung in 2 runs (run-0, run-1); other devices passed in 2 runs"
    )


def test_another_model_is_no_sibling() -> None:
    failing = uses("A-0!process", "A-0!process", kind="an old card")
    assert find_bad_devices([*failing, *uses("A-1", "A-1")]) == []
