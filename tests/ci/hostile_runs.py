"""Folders of results that a stranger made to break the importing machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ci.model.results import RunResult
from ci.store.folder import RESULTS_FILE
from tests.ci.foreign_runs import write_run
from tests.fuzz.documents import NESTED, VALUES, changed, nested, places

LINES = (
    b"\xff\xfe\x00", b"[" * 100_000, b'{"a":' * 5_000, b"1" * 6_000, b"\x1b]0;title\x07",
    b'{"$report_type": "TestReport", "nodeid": "\\u001b[2J", "when": "call", "outcome": "failed",'
    b' "longrepr": "\\u009b2J"}',
    b'{"$report_type": "TestReport", "nodeid": "a", "when": "call", "outcome": "passed",'
    b' "duration": 1e300}',
    b'{"$report_type": "TestReport", "nodeid": "a", "when": "call", "outcome": "passed",'
    b' "duration": Infinity}',
    b'{"$report_type": "TestReport", "nodeid": "\\ud800\\u0000", "when": "call",'
    b' "outcome": "passed", "duration": 1e9}',
    b'{"$report_type": "SessionFinish", "exitstatus": 99999999999999999999}',
    b'{"$report_type": "CollectReport", "nodeid": "", "outcome": "failed", "longrepr": {}}',
    b"# ninja log v7", b"0\t999999999999999\t0\ta.o\tff", b"\x1f\x8b\x08\x00", b"\0" * 600, b"",
)  # fmt: skip
FILES = (
    *("pytest.jsonl", "pytest.rerun-1.jsonl", "pytest.rerun-99999999999999999999.jsonl"),
    *("events.jsonl", "environment.json", "ninja_log", "compile_commands.json", "install.log"),
    *("generated.tar.gz", "time_traces.tar.gz", "ccache_statistics.log", "host.lock"),
)


@st.composite
def documents(draw: st.DrawFn, run: RunResult) -> bytes:
    """The bytes of a ``results.json``, made of a valid one."""
    document = json.loads(run.to_json())
    found = places(document)
    for place in draw(st.lists(st.sampled_from(found), max_size=4)):
        value = draw(st.sampled_from([*VALUES, nested(NESTED), "remove", "add", "twice"]))

        def change(container: Any, key: Any, value: Any = value) -> None:
            if value == "remove":
                del container[key]
            elif value == "add":
                container[key]["unknown"] = 1
            elif value == "twice":
                container[key] *= 2
            else:
                container[key] = deepcopy(value)  # the next change may be inside of it

        changed(document, place, change)
    content = json.dumps(document).encode()
    how = draw(st.sampled_from(["whole"] * 6 + ["cut", "spliced", "utf-16", "noise"]))
    at = draw(st.integers(0, len(content)))
    forms: dict[str, bytes] = {
        "whole": content,
        "cut": content[:at],
        "spliced": content[:at] + draw(st.sampled_from(LINES)) + content[at:],
        "utf-16": content.decode().encode("utf-16"),
        "noise": draw(st.binary(max_size=200)),
    }
    return forms[how]


@st.composite
def folders(draw: st.DrawFn, run: RunResult) -> Callable[[Path], Path]:
    """A function that makes the folder of a hostile run at a path."""
    document = draw(documents(run))
    files = draw(
        st.dictionaries(
            st.tuples(st.sampled_from(["nvidia", "iluvatar", "."]), st.sampled_from(FILES)),
            st.lists(st.sampled_from(LINES), max_size=4).map(b"\n".join),
            max_size=4,
        )
    )
    odd = draw(st.sampled_from(["", "", "", "link", "pipe", "folder", "name", "deep", "up"]))

    def make(folder: Path) -> Path:
        write_run(folder, run)
        (folder / RESULTS_FILE).write_bytes(document)
        for (platform, name), content in files.items():
            (folder / platform / name).write_bytes(content)
        _add_odd(folder, odd)
        return folder

    return make


def _add_odd(folder: Path, odd: str) -> None:
    results = folder / RESULTS_FILE
    if odd == "link":
        (folder / "nvidia" / "environment.json").unlink(missing_ok=True)
        (folder / "nvidia" / "environment.json").symlink_to("/etc/passwd")
        (folder / "up").symlink_to(folder.parent)
    elif odd == "pipe":
        results.unlink()
        os.mkfifo(results)
    elif odd == "folder":
        results.unlink()
        results.mkdir()
    elif odd == "name":
        (folder / os.fsdecode(b"\xff\x1b[2J")).write_text("")
    elif odd == "deep":
        at = folder
        for _ in range(60):
            at /= "d"
        at.mkdir(parents=True)
    elif odd == "up":
        results.rename(folder / "elsewhere.json")
        results.symlink_to("elsewhere.json")
