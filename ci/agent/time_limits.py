"""How long the agent waits for processes before it goes on without them, in seconds."""

from __future__ import annotations

GRACE_S = 10.0  # between SIGTERM and SIGKILL when a stage must end; the default of `docker stop`
LEFTOVER_GRACE_S = 2.0  # the same for leftover processes of a finished stage
DEAD_RUN_GRACE_S = 20.0  # the same for leftovers of a dead run, whose agent takes 12 s to end
KILL_S = 30.0  # after SIGKILL: a process stuck in the kernel (a hung device) may never end
OVERDUE_S = 5.0  # after a time limit; a supervisor that is not stopped acts within milliseconds
FOUND_S = 10.0  # until the stage's process exists, after the event that it starts
TOOL_S = 60.0  # tools answer in a second; a tool that hangs is recorded as unknown
PROBE_S = 60.0  # without its daemon, a driver takes seconds to wake up each device
PROBE_KILL_S = 5.0  # a probe that survives SIGKILL for so long hangs in the kernel
