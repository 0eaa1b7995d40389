"""Suites that write to the files of the run."""

from __future__ import annotations

LONGEST = 20_000_000
# Its test passes, and writes invalid events and reports.
SUITE = f"""
import os
import pathlib


def agent():
    pid = os.getpid()
    while True:
        status = pathlib.Path(f"/proc/{{pid}}/stat").read_text()
        pid = int(status.rpartition(")")[2].split()[1])
        words = pathlib.Path(f"/proc/{{pid}}/cmdline").read_bytes().split(b"\\0")
        if any(word.endswith((b"agent.pyz", b"ci.agent")) for word in words):
            return pid


def write(path):
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    lines = [
        b'{{"event":"stage_started"}}',
        b'{{"event":"run_finished","time":1,"monotonic":1,"exit_code":"0"}}',
        b"[" * 200_000,
        b"x" * {LONGEST},
    ]
    text = b"\\n".join([b"", *lines])  # the last one without an end
    while text:
        text = text[os.write(file, text) :]
    os.close(file)


def test_a(request):
    log = pathlib.Path(request.config.getoption("report_log"))
    results = pathlib.Path(request.config.getoption("xmlpath")).parent
    for place in {{places!r}}:
        if place == "stdout":
            write(f"/proc/{{agent()}}/fd/1")
        else:
            write(log if place == log.name else results / place)
"""


def suite(*places: str) -> str:
    """A file of tests that writes to ``places``: the agent's stdout, and files of its results."""
    return SUITE.replace("{places!r}", repr(places))


# Its test replaces the agent's file by one in which no stage took any time.
FORGED_TIMES = """
import json
import pathlib


def test_a(request):
    path = pathlib.Path(request.config.getoption("xmlpath")).with_name("events.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        if event["event"] == "stage_finished":
            event["seconds"] = 0.001
    path.unlink()
    path.write_text("".join(json.dumps(event) + "\\n" for event in events))
"""
