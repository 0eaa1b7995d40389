"""The notes of a row."""

from __future__ import annotations

from collections.abc import Sequence

from ci.facts.sentences.sentence import fact
from ci.model.verdicts import Harness
from ci.util.text import counted, join_names

NO_ISOLATION = "--no-build-isolation"


# Notes on the verdict


@fact
def full_suite() -> str:
    """Every test of the suite ran, none failed."""
    return "full suite passed"


@fact
def selected_suite() -> str:
    """The run was narrowed with `--select`."""
    return "suite of the selected operators passed"


@fact
def suite_without_device() -> str:
    """The library was compiled; tests that need the device were skipped."""
    return "all tests that run without a device passed"


@fact
def suite_unfinished() -> str:
    """The evidence names the test that was running."""
    return "the suite did not finish"


@fact
def failed_counts(failed: int, subtests: int, errors: int) -> str:
    """Run one of the tests again with `python -m ci rerun`."""
    parts = [f"{counted(failed, 'test')} failed"] if failed else []
    if subtests:  # pytest's summary counts them beside their tests
        parts = [f"{it} with {counted(subtests, 'failed subtest')}" for it in parts]
    return ", ".join([*parts, *([counted(errors, "error")] if errors else [])])


@fact
def interrupted() -> str:
    """Use `--resume`."""
    return "interrupted"


@fact
def wrapper_returned(exit_code: int | None, *, by_agent: bool) -> str:
    """The tests count. Look at what the test command does after pytest."""
    who = "the agent" if by_agent else "outer wrapper"
    return f"{who} returned {exit_code} after the pytest summary"


@fact
def process_crashed(tests: Sequence[str]) -> str:
    """Run the named test alone."""
    return f"process crashed in {join_names(tests)}" if tests else "process crashed"


@fact
def no_closing_line(exit_code: int, *, shows_pytest: bool) -> str:
    """The evidence names what may suppress it."""
    known = "pytest printed no closing summary" if shows_pytest else "nothing shows that pytest ran"
    return f"{known} (exit code {exit_code})"


_HARNESS = {
    Harness.OOM_KILLED: "killed for lack of memory",
    Harness.TIMED_OUT: "timed out",
    Harness.LOST: "container lost",
    Harness.INFRASTRUCTURE: "infrastructure failure",
}


@fact
def harness_failed(harness: Harness) -> str:
    """The evidence has the cause."""
    return _HARNESS[harness]


# Notes on the suite


@fact
def selected(overloads: int, of: int) -> str:
    """The run was narrowed with `--select`."""
    return f"selected {overloads:,} of {counted(of, 'overload')}"


@fact
def selection_unrecorded(operators: str) -> str:
    """The suite does not record what the library has."""
    return f"selected {operators}; no test recorded which of them the library has"


@fact
def shards(count: int, seconds: Sequence[float]) -> str:
    """The tests ran in several processes, with the seconds of each."""
    times = " + ".join(f"{it:.0f}" for it in seconds)
    return f"{count} shards" + (f" ({times} s)" if times else "")


@fact
def reruns(tests: int, attempts: int, passed: int) -> str:
    """The result of `--reruns`. The verdict remains that of the first attempt."""
    which = counted(tests, "failed test")
    if not attempts:
        return f"{which} without a result in any rerun"
    if not passed:
        return f"{which} failed again in all {counted(attempts, 'rerun')}"
    share, ending = f"{passed:,} of", "flaky"
    if passed == attempts:  # a rerun does not run the tests before it
        share, ending = "all", "flaky, or dependent on the tests before"
    return f"{which} passed in {share} {counted(attempts, 'rerun')}: {ending}"


@fact
def reruns_ended(reason: str, *, after_some: bool) -> str:
    """Remove the cause that the text names."""
    return f"no {'more ' if after_some else ''}reruns: {reason}"


@fact
def simulated_device() -> str:
    """A program stood in for the device. The row proves nothing about the vendor's hardware."""
    return "simulated device: no vendor hardware was used"


@fact
def compiled_only(skipped: int | None) -> str:
    """The library was compiled, and only tests that need no device ran."""
    count = "" if skipped is None else f", {counted(skipped, 'test')} skipped"
    return f"no device: compiled only{count}; no vendor hardware was used"


@fact
def no_contract(platform: str, update: str | None) -> str:
    """The platform has no file of expected outcomes: run the command and commit the file."""
    return f"no contract for {platform} yet{f'; write it with {update}' if update else ''}"


@fact
def contract_differs(changes: Sequence[str], update: str | None) -> str:
    """Find out why the tests changed. If that is intended, run the command and commit the file."""
    return f"contract: {'; '.join([*changes, *([f'update with: {update}'] if update else ())])}"


@fact
def overloads_executed(shares: Sequence[str]) -> str:
    """How many overloads of operators at least one test executed."""
    return f"overloads executed: {', '.join(shares)}"


@fact
def overloads_passed(own: int, composite: int, fallback: int) -> str:
    """What computed the results on a simulated device."""
    return (
        f"overloads passed: {own:,} by own kernels, {composite:,} composite,"
        f" {fallback:,} by the CPU fallback"
    )


@fact
def instructions_missing(tests: int, needs: Sequence[str]) -> str:
    """See [Processors](../processors.md)."""
    return f"{counted(tests, 'test')} skipped, the processor lacks {'; '.join(needs)}"


@fact
def quarantined(tests: int, entries: Sequence[str]) -> str:
    """A known defect of the vendor made the tests fail, as expected."""
    return f"{counted(tests, 'test')} quarantined: {', '.join(entries)}"


@fact
def quarantine_stale(entries: Sequence[str]) -> str:
    """Tests pass in spite of their quarantine: remove these entries."""
    return f"quarantine stale: {', '.join(entries)}"


@fact
def differs_from_cpu(overloads: Sequence[str]) -> str:
    """Compare the results of these overloads with those of the CPU."""
    count = counted(len(overloads), "overload")
    return f"results differ from the CPU: {count}: {join_names(overloads)}"


# Notes on the environment


@fact
def lease_waited(seconds: float) -> str:
    """The run waited for a free device. The time is not part of the total."""
    return f"device lease waited {seconds:.0f} s"


@fact
def host_engine() -> str:
    """The run used no container: the code under test ran as your user."""
    return "host engine: a fresh virtual environment on this machine, without isolation"


@fact
def tools(versions: Sequence[str]) -> str:
    """The tools of the host engine's stages, which are those of a machine, not of an image."""
    return ", ".join(versions)


@fact
def cold_cache() -> str:
    """Nothing was compiled before. Do not compare build times with those of a warm cache."""
    return "cold compiler cache"


@fact
def warm_cache(hit_rate: float) -> str:
    """How much was compiled before. Do not compare build times with those of a cold cache."""
    return f"warm compiler cache ({100 * hit_rate:.0f} % hits)"


@fact
def compiled_untested(modules: Sequence[str]) -> str:
    """The tests imported the sources, which lack the compiled modules."""
    return (
        f"not tested: compiled {join_names(modules)}: python -m pytest imports the sources, which"
        " lack it; use pytest --import-mode=importlib"
    )


@fact
def sources_tested(modules: Sequence[str]) -> str:
    """Let `pyproject.toml` include the modules."""
    return (
        f"the sources were tested, not what was installed, which lacks {join_names(modules)}:"
        " python -m pytest imports the sources; use pytest --import-mode=importlib"
    )


@fact
def requirements_missing(stage: str, packages: Sequence[str]) -> str:
    """Add the packages to the file of `requirements:` in `ci.yaml`, or leave out the option."""
    return (
        f"stage {stage} builds without isolation, and the environment lacks {join_names(packages)}"
        " of build-system.requires: add to the file of `requirements:` what is missing, or leave"
        f" out {NO_ISOLATION}"
    )


@fact
def kept(name: str) -> str:
    """`python -m ci shell` opens in it; `gc` removes it."""
    return f"kept for `shell`: {name}"


@fact
def not_listed(count: int, what: str) -> str:
    """The row of `results.json` would be too large to be read again."""
    return f"{counted(count, what)} not listed"


@fact
def reported(text: str) -> str:
    """What the engine found, or the copying of sources and results. The text says what to do."""
    return text
