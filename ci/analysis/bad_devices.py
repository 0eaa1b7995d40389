"""Devices that fail where their siblings pass: the fault of the device, never of the tests. Pure.

A failure counts against a device if the same test, at the same commit, passed elsewhere and failed
nowhere else. One failure proves little, so it takes several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from ci.util.text import counted, join_names

# Of the suite as a whole: its processes died or hung. Such an end is rarer than a failed test, so
# fewer of them are enough. A test that fails in a tenth of its runs anywhere fails three times in a
# row, beside siblings that pass, in one of a thousand cases.
PROCESS = "the process"
LEAST_ENDS, LEAST_FAILURES = 2, 3
LEAST_PASSES = 2
LEAST_SHARE = 0.5  # of its own runs: a device that mostly passes is not set aside


@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """What a run, or one of its shards, shows of its devices."""

    run_id: str
    commit: str
    kind: str
    """The model and the driver: devices of other kinds are no siblings."""
    devices: AbstractSet[str]
    """The UUIDs; empty where it is not known which device ran a test."""
    failed: AbstractSet[str]
    """Tests, and ``PROCESS`` if that died or hung."""
    passed: AbstractSet[str]


@dataclass(frozen=True, kw_only=True)
class BadDevice:
    """A device with the evidence against it."""

    uuid: str
    what: str
    """The test that fails on it, or ``PROCESS``."""
    failures: tuple[str, ...]
    """Runs in which it failed."""
    passes: tuple[str, ...]
    """Runs of the same commits in which others passed."""

    @property
    def reason(self) -> str:
        """``the process died or hung in 2 runs (…), where others passed in 3 runs``."""
        what = "its process died or hung" if self.what == PROCESS else f"{self.what} failed"
        runs = f"{counted(len(self.failures), 'run')} ({join_names(self.failures, 3)})"
        return f"{what} in {runs}; other devices passed in {counted(len(self.passes), 'run')}"


def find_bad_devices(uses: Sequence[DeviceUse]) -> list[BadDevice]:
    """Find the devices with enough evidence against them, each with its strongest."""
    found: dict[str, BadDevice] = {}
    for uuid in sorted({uuid for use in uses for uuid in use.devices}):
        suspects = [it for it in _evidence(uuid, uses) if _is_enough(it, uuid, uses)]
        if suspects:
            found[uuid] = max(suspects, key=lambda it: (it.what == PROCESS, len(it.failures)))
    # A fault that follows the machine, such as its driver, is not that of a device.
    kinds = {uuid: use.kind for use in uses for uuid in use.devices}
    return [it for it in found.values() if any(_is_fit(kinds, other, it, found) for other in kinds)]


def _is_fit(
    kinds: Mapping[str, str], other: str, bad: BadDevice, found: Mapping[str, BadDevice]
) -> bool:
    """Whether a device is a sibling that nothing is said against."""
    return other not in found and kinds[other] == kinds[bad.uuid]


def _evidence(uuid: str, uses: Sequence[DeviceUse]) -> Iterator[BadDevice]:
    """Yield what failed on a device, and passed on siblings, at the same commits."""
    own = [use for use in uses if uuid in use.devices]
    what: dict[str, list[DeviceUse]] = defaultdict(list)
    for use in own:
        for subject in use.failed:
            what[subject].append(use)
    for subject, failing in what.items():
        failures, passes = [], dict[str, None]()
        for use in failing:
            others = [it for it in uses if _is_sibling(it, use, uuid)]
            if any(subject in it.failed for it in others):
                continue
            witnesses = [it.run_id for it in others if subject in it.passed]
            if witnesses:
                failures.append(use.run_id)
                passes.update(dict.fromkeys(witnesses))
        if failures:
            yield BadDevice(uuid=uuid, what=subject, failures=tuple(failures), passes=tuple(passes))


def _is_sibling(use: DeviceUse, failing: DeviceUse, uuid: str) -> bool:
    is_like = (use.commit, use.kind) == (failing.commit, failing.kind)
    return is_like and uuid not in use.devices


def _is_enough(bad: BadDevice, uuid: str, uses: Sequence[DeviceUse]) -> bool:
    least = LEAST_ENDS if bad.what == PROCESS else LEAST_FAILURES
    passed = sum(uuid in use.devices and bad.what in use.passed for use in uses)
    share = len(bad.failures) / (len(bad.failures) + passed)
    return len(bad.failures) >= least and len(bad.passes) >= LEAST_PASSES and share >= LEAST_SHARE
