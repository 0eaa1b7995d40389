"""The judgement of the harness: how the processes of a run ended, the product apart."""

from __future__ import annotations

from signal import Signals

from ci.facts.case import (
    LAST_PYTEST_STATUS,
    SIGNALLED,
    UNFINISHED,
    Case,
    fact,
    likely,
    shown_exit,
    unknown,
)
from ci.model.events import StageFinished
from ci.model.results import Evidence, Harness
from ci.util.text import first_names

NO_SUMMARY = (
    "it crashed or called os._exit, or `-qq`, `-p no:terminal` or a plugin suppresses the"
    " summary: run pytest without these"
)

Opinion = tuple[Harness, list[Evidence]]


def judge_harness(case: Case) -> Opinion:
    """Return the first that applies, from the most to the least certain."""
    if case.facts.interrupted or any(e.interrupted for e in case.ends):
        return Harness.INFRASTRUCTURE, [fact("the run was interrupted by its caller")]
    if failed := case.record.lease_failed:
        return Harness.INFRASTRUCTURE, [fact(failed.reason)]
    opinions = (_timed_out, _after_summary, out_of_memory, _lost, _crashed)
    found = (opinion(case) for opinion in opinions)
    return next((opinion for opinion in found if opinion), (Harness.CLEAN, []))


def _timed_out(case: Case) -> Opinion | None:
    for end in case.ends:
        if end.timed_out:
            text = f"stage {end.stage} was ended after {end.seconds:.0f} s, its time limit"
            return Harness.TIMED_OUT, [fact(text)]
    return None


def _after_summary(case: Case) -> Opinion | None:
    """A process that ended otherwise than the pytest whose closing summary it had printed."""
    code = code_after_summary(case)
    if code is None:
        return None
    end = case.pytest_end
    known = ", though pytest exited with 0" if end is not None and end.pytest_status == 0 else ""
    evidence = [fact(f"exit code {code} after the pytest summary{known}")]
    if memory := out_of_memory(case):
        evidence += memory[1]
    return Harness.EXIT_AFTER_SUMMARY, evidence


def code_after_summary(case: Case) -> int | None:
    """Return the exit code that contradicts a finished pytest session.

    ``None``: there is none, or pytest's stage has no end, so that its exit code is not known.
    The container's code counts where it was killed with nothing left to do but reruns.
    """
    end, run = case.pytest_end, case.record.run_finished
    if not case.session_ended or case.summary is None or end is None:
        return None
    wrapped = end.pytest_status == 0 and end.exit_code > LAST_PYTEST_STATUS
    if wrapped or end.exit_code >= SIGNALLED:
        return end.exit_code
    code = case.facts.exit_code
    if code is None or code < SIGNALLED or (run is not None and run.exit_code == code):
        return None
    return code if run is not None or all(map(case.finished, case.stages)) else None


def out_of_memory(case: Case) -> Opinion | None:
    """What was killed for memory, and whose memory it was."""
    limit = case.memory_limit_bytes
    if limit is None:
        why = "no limit is configured, so the machine ran out"
    elif limit_reached(case):
        why = f"the configured limit is {limit:,} bytes"
    else:
        why = f"the configured limit of {limit:,} bytes was not reached, so the machine ran out"
    if victims := _victims(case):
        end = victims[0]
        text = f"the kernel killed {end.oom_kills} processes of stage {end.stage} for memory"
        return Harness.OOM_KILLED, [fact(f"{text}: {why}")]
    # What a rerun brought about is no part of the run that is judged.
    if case.facts.oom_killed and not any(end.oom_kills for end in case.record.reruns.values()):
        return Harness.OOM_KILLED, [fact(f"the engine reports an out-of-memory kill: {why}")]
    return None


def limit_reached(case: Case) -> bool:
    """Whether a kill for memory is due to the configured limit, if there was one.

    The kernel counts kills of both causes together. Where it does not say that the limit was
    hit, the limit is blamed.
    """
    hits = [end.memory_limit_hits for end in _victims(case)]
    return case.memory_limit_bytes is not None and (not hits or any(n != 0 for n in hits))


def _victims(case: Case) -> list[StageFinished]:
    return [end for end in case.ends if end.oom_kills and end.exit_code != 0]


def machine_ran_out(case: Case) -> bool:
    """Whether something was killed because the machine, not a limit, had no memory left."""
    return out_of_memory(case) is not None and not limit_reached(case)


def _out_of_sight(case: Case) -> bool:
    """The engine lost it; where an exit code is known, the agent crashed instead."""
    return case.facts.lost and case.facts.exit_code is None


def _lost(case: Case) -> Opinion | None:
    if not _out_of_sight(case):
        return None
    return Harness.LOST, [fact("the agent vanished without a result")]


def _crashed(case: Case) -> Opinion | None:
    if case.tests is not None and case.tests.crashed:
        text = f"a pytest worker process died in {first_names(case.tests.crashed)}"
        return Harness.CRASHED, [fact(text)]
    for killed in case.ends:
        if killed.signal is not None:
            return Harness.CRASHED, [fact(_killed(killed)), *_outside(killed)]
    end, run, code = case.pytest_end, case.record.run_finished, case.facts.exit_code
    if end is not None and case.tests is not None and not case.session_ended:
        text = f"pytest exited early with {shown_exit(end)} and did not end its session"
        return Harness.CRASHED, [fact(text)]
    if run is None:
        how = "ended without a result" if case.record.events else "never began"
        return Harness.INFRASTRUCTURE, [fact(f"the agent {how}, exit code {code}")]
    if end is not None and case.summary is None and not _refused(case, end):
        text = f"pytest printed no closing summary, {shown_exit(end)}: {NO_SUMMARY}"
        return Harness.CRASHED, [fact(text)]
    if code not in (None, run.exit_code):
        text = f"the agent ended with exit code {code}, after it had recorded {run.exit_code}"
        return Harness.INFRASTRUCTURE, [fact(text)]
    return None


def _refused(case: Case, end: StageFinished) -> bool:
    """Whether pytest itself said why it did not begin: a wrong option, a broken conftest."""
    return case.tests is None and end.exit_code in UNFINISHED


def _killed(end: StageFinished) -> str:
    return f"stage {end.stage} was killed by {shown_exit(end)} after {end.seconds:.0f} s"


def _outside(end: StageFinished) -> list[Evidence]:
    if end.signal != Signals.SIGKILL:
        return []
    if end.oom_kills is None:
        return [unknown("who sent SIGKILL; the kernel's out-of-memory counter is not readable")]
    return [likely("SIGKILL came from outside: the kernel counts no out-of-memory kill")]
