"""What happened around the tests: to the agent, its container and its records."""

from __future__ import annotations

from enum import StrEnum

from ci.facts.sentences.sentence import Exit, fact
from ci.util.text import counted, describe_unreadable, signal_name


@fact
def interrupted_by_caller() -> str:
    """Use `--resume`."""
    return "the run was interrupted by its caller"


@fact
def lease_failed(reason: str) -> str:
    """Wait for the named run, end the program that uses the device, or raise `wait_s`."""
    return reason


@fact
def network_remained(reason: str) -> str:
    """Use `--resume`."""
    return reason


@fact
def exit_after_summary(exit_code: int, inner: int | None, *, by_agent: bool) -> str:
    """The tests count. Look at what the test command does after pytest."""
    known = ", though pytest exited with 0" if inner == 0 else ""
    if by_agent:
        known = ", the agent's own: it ended without a result"
    return f"exit code {exit_code} after the pytest summary{known}"


@fact
def killed_for_memory(
    processes: int | None, stage: str | None, limit: int | None, *, reached: bool
) -> str:
    """Run fewer compilers, processes or platforms at once, or raise the limit."""
    if limit is None:
        why = "no limit is configured, so the machine ran out"
    elif reached:
        why = f"the configured limit is {limit:,} bytes"
    else:
        why = f"the configured limit of {limit:,} bytes was not reached, so the machine ran out"
    if processes is None:
        return f"the engine reports an out-of-memory kill: {why}"
    return f"the kernel killed {counted(processes, 'process')} of stage {stage} for memory: {why}"


@fact
def survived_kills(processes: int, stage: str) -> str:
    """Run fewer compilers at once: another run may not survive it."""
    kills = f"the kernel killed {counted(processes, 'process')} of stage {stage} for memory"
    return f"{kills}, but the stage succeeded"


@fact
def result_not_received() -> str:
    """Use `--resume`."""
    return "the agent's result was not received"


@fact
def container_restarted() -> str:
    """Let nothing restart containers of runs; then start the run again."""
    return "the container was restarted from outside; nothing ran in it a second time"


@fact
def container_ended(request: str) -> str:
    """Find out who ended it, and use `--resume`."""
    return f"the container was ended from outside, by a request like `{request}`"


@fact
def agent_signalled(signal: int | None) -> str:
    """Find the sender, and use `--resume`."""
    name = "a signal" if signal is None else signal_name(signal)
    return f"the agent received {name}, which this caller did not send"


@fact
def supervisor_signalled(stage: str, sender: str) -> str:
    """Find the sender, and use `--resume`."""
    return f"the supervisor of stage {stage} received a signal that {sender} did not send"


@fact
def agent_ended(exit_code: int | None, *, started: bool) -> str:
    """Find out who removed or killed the container, and use `--resume`."""
    how = "ended without a result" if started else "did not start"
    return f"the agent {how}, exit code {exit_code}"


@fact
def agent_disagrees(exit_code: int | None, recorded: int) -> str:
    """Something in the container changed the agent's exit code: start the run again."""
    return f"the agent ended with exit code {exit_code}, but had recorded {recorded}"


@fact
def left_session(end: Exit, *, is_wrapped: bool) -> str:
    """Look for a call of `os._exit`."""
    if is_wrapped:  # the exit code is the wrapper's
        return f"pytest did not end its session, and the test command ended with {end}"
    return f"pytest exited early with {end} and did not end its session"


@fact
def no_summary(end: Exit) -> str:
    """Look for a call of `os._exit`, or an option that suppresses the summary."""
    return (
        f"pytest printed no closing summary, {end}: it crashed or called os._exit, or `-qq`,"
        " `-p no:terminal` or a plugin suppresses the summary: run pytest without these"
    )


@fact
def pytest_unseen(end: Exit) -> str:
    """A wrapper must pass its arguments on to pytest."""
    return f"nothing shows that pytest ran: {end}, no log and no summary"


@fact
def device_changed(device: str, before: str, after: str) -> str:
    """Check the device before you trust the results."""
    return f"device {device} was {before} before the tests, {after} after"


@fact
def record_changed(how: str) -> str:
    """Find out which test or build step writes to `events.jsonl`."""
    return f"events.jsonl differs from the events that the engine received: {how}"


class Source(StrEnum):
    """A record with lines that cannot be read."""

    EVENTS = "events"
    LOG = "log"
    OUTPUT = "output"


_SOURCES = {
    Source.EVENTS: "events.jsonl has {}",
    Source.LOG: "the per-test log has {}",
    Source.OUTPUT: "the agent's output has {}, kept in agent.log",
}


@fact
def unreadable_lines(source: Source, lines: int, longest: int) -> str:
    """Let the tests print less: a process may also have been killed while it wrote."""
    return _SOURCES[source].format(describe_unreadable(lines, longest))
