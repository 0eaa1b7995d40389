"""The agent as containers get it: one file, run by a Python of its own."""

from __future__ import annotations

import ast
import json
import os
import platform
import re
import signal
import sys
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any
from zipimport import zipimporter

import pytest

from ci.agent import machine
from ci.agent import stage as stages
from ci.agent.artifacts import collect
from ci.agent.follow import FollowedStage, follow_stages
from ci.agent.output import PACE_S, Printer, StageOutput
from ci.agent.stage import Stage, StageCommand
from ci.agent.stage_runner import LEAST_FREE
from ci.engines.job import agent_archive, agent_modules
from ci.protocol.events import ArtifactCut, CommandEnd
from ci.protocol.job import DISK_FULL, PROTOCOL, ArtifactPlan
from ci.protocol.stage_kind import StageKind
from ci.util.files import copy_file
from ci.util.invocation import REPOSITORY
from tests.cases import narrowed
from tests.ci.agent_job import Job, printed_events, wait_for_end
from tools.faults.disks import fill, limited

# Modules of the standard library of every Python from 3.8 on; additions must be, too.
OLD_MODULES = {
    *(
        "__future__",
        "ast",
        "base64",
        "collections",
        "contextlib",
        "ctypes",
        "dataclasses",
        "difflib",
    ),
    *(
        "enum",
        "errno",
        "fcntl",
        "fnmatch",
        "functools",
        "glob",
        "gzip",
        "hashlib",
        "html",
        "importlib",
        "itertools",
        "json",
        "math",
        "mmap",
    ),
    *("os", "pathlib", "pkgutil", "platform", "pwd", "re", "resource", "select", "shlex", "shutil"),
    *("signal", "socket", "stat", "struct", "subprocess", "sys", "tarfile", "tempfile", "time"),
    *("traceback", "types", "typing", "urllib", "zipfile"),
}
DISK = 16 * LEAST_FREE


def running_in(folder: Path) -> list[str]:
    """Return the processes that have ``folder`` as their working directory."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if link.readlink() == folder:
                found.append(link.parent.name)
    return found


def test_passing_stages(job: Job) -> None:
    job.python("first", "import os; print(os.environ['GREETING'], os.getcwd())")
    job.stage("second", "sh", "-c", "echo out; echo err >&2", environment={"X": "1"})
    assert job.run() == 0
    assert job.log("first") == f"hello {job.workspace}\n"
    assert job.log("second") == "out\nerr\n"
    kinds = [event["event"] for event in job.events()]
    stage = ["stage_started", "stage_finished"]
    assert kinds == ["run_started", *stage, *stage, "run_finished"]
    assert [event for event in job.printed if event["event"] != "output"] == job.events()
    assert job.output() == f"hello {job.workspace}\nout\nerr\n".encode()


@pytest.mark.parametrize(
    ("script", "timeout_s", "code"),
    [("exit 3", 60.0, 3), ("trap 'exit 0' TERM; sleep 600 & wait", 1.0, 0)],
)
def test_failing_stage_skips_the_later_ones(
    job: Job, script: str, timeout_s: float, code: int
) -> None:
    """A stage that its time limit ends fails with any exit code."""
    job.stage("build", "sh", "-c", script, timeout_s=timeout_s)
    job.stage("pytest", "true")
    assert job.run() == 1
    finished = job.finished("build")
    assert (finished["exit_code"], finished["timed_out"]) == (code, timeout_s < 2)
    (skipped,) = job.events("stage_skipped")
    assert (skipped["stage"], skipped["reason"]) == ("pytest", "not run: build failed")
    assert job.events("run_finished")[0]["exit_code"] == 1


def test_stages_that_were_not_asked_for_do_not_run(job: Job) -> None:
    job.stage("install", "true")
    job.stage("pytest", "false", kind=StageKind.PYTEST, left_out=True)
    job.stage("package", "false", left_out=True)
    assert job.run() == 0
    skipped = job.events("stage_skipped")
    assert [it["stage"] for it in skipped] == ["pytest", "package"]
    assert {it["reason"] for it in skipped} == {"not run: only another stage was asked for"}


def test_time_out_ends_the_whole_tree(job: Job) -> None:
    # Not in Python, which a busy machine may not have started when the time is up.
    job.stage("hang", "sh", "-c", "setsid sleep 600 & echo $!; wait", timeout_s=1.0)
    assert job.run() == 1
    assert job.finished("hang")["timed_out"] is True
    assert job.finished("hang")["exit_code"] == 143
    wait_for_end(int(job.log("hang")))


@pytest.mark.parametrize(
    ("command", "changes", "code", "log"),
    [
        pytest.param("kill -SEGV $$", {}, 139, "", id="crash"),
        # Of the supervisor.
        pytest.param("exit 7", {"environment": {"A=B": "x"}}, 70, "ValueError: illegal", id="name"),
        pytest.param("exit \0", {}, 70, "ValueError: embedded null byte", id="null"),
        pytest.param("sleep 600", {"timeout_s": 1e10}, 70, "OverflowError: ", id="time-out"),
    ],
)
def test_what_fails_a_stage(
    job: Job, command: str, changes: dict[str, Any], code: int, log: str
) -> None:
    job.stage("build", "sh", "-c", command, **changes)
    assert job.run() == 1
    finished = job.finished("build")
    assert finished["exit_code"] == code
    assert finished["signal"] == (signal.SIGSEGV if code == 139 else None)
    assert log in job.log("build")
    assert running_in(job.workspace) == []


def test_missing_command(job: Job) -> None:
    job.stage("build", "no-such-compiler")
    assert job.run() == 1
    assert job.finished("build")["exit_code"] == 127
    assert job.log("build") == "no-such-compiler: No such file or directory\n"


def test_leftovers_end_with_their_stage(job: Job) -> None:
    job.stage("build", "sh", "-c", "setsid sleep 600 & echo $!")
    assert job.run() == 0
    wait_for_end(int(job.log("build")))


def test_cpu_time_of_orphans_counts(job: Job) -> None:
    # The grandchild loses its parent at once; the pipe closes when it has ended.
    program = """
import os, time
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        while time.process_time() < 0.5: pass
    os._exit(0)
os.close(write)
os.read(read, 1)
"""
    job.python("orphan", program)
    job.run()
    assert job.events("run_started")[0]["machine"]["cores"] >= 1
    finished = job.finished("orphan")
    assert finished["cpu_user_s"] + finished["cpu_system_s"] >= 0.5
    assert finished["seconds"] > 0
    assert (finished["exit_code"], finished["signal"], finished["timed_out"]) == (0, None, False)


def test_peak_memory_is_the_stage_s_own(job: Job) -> None:
    job.python("large", "bytearray(200_000_000)")
    job.python("small", "pass")
    job.run()
    assert job.finished("large")["peak_rss_bytes"] > 200_000_000
    assert job.finished("small")["peak_rss_bytes"] < 100_000_000


OFF = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


ADDOPTS = "addopts = --disable-plugin-autoload"
LISTED = 'addopts = ["-p", "no:cacheprovider", "--disable-plugin-autoload"]'
DEPENDENT = '[project]\ndependencies = ["pytest_reportlog"]\n'


@pytest.mark.parametrize(
    ("files", "command", "environment"),
    [
        ({}, "", OFF),
        ({}, "--disable-plugin-autoload", {}),
        ({}, "", {"PYTEST_ADDOPTS": "--disable-plugin-autoload"}),
        # It would be an error to load it under two names.
        ({}, "-p pytest_reportlog.plugin", OFF),
        ({}, "-p pytest_reportlog", OFF),
        ({}, "", OFF | {"PYTEST_PLUGINS": "pytest_reportlog.plugin"}),
        *narrowed(
            [
                ({"pytest.ini": f"[pytest]\n{ADDOPTS}\n"}, "", {}),
                ({"tox.ini": f"[pytest]\n{ADDOPTS}\n"}, "", {}),
                ({"setup.cfg": f"[tool:pytest]\n{ADDOPTS}\n"}, "", {}),
                ({"pyproject.toml": f"[tool.pytest.ini_options]\n{LISTED}\n"}, "", {}),
                ({"unit/pytest.ini": f"[pytest]\n{ADDOPTS}\n"}, "unit/test_b.py::test", {}),
                ({"own.cfg": f"[tool:pytest]\n{ADDOPTS}\n"}, "-c own.cfg", {}),
                ({"pytest.ini": f"[pytest]\n{ADDOPTS}\n"}, f"--deselect={'ä' * 200}", {}),
                # The project loads it itself, under another name.
                ({"pytest.ini": f"[pytest]\n{ADDOPTS} -p pytest_reportlog.plugin\n"}, "", {}),
                # A dependency of that name is not an option.
                ({"tox.ini": f"[pytest]\n{ADDOPTS}\n", "pyproject.toml": DEPENDENT}, "", {}),
            ],
            kept=5,
        ),
    ],
)
def test_pytest_that_loads_no_plugins_writes_its_log(
    job: Job, files: dict[str, str], command: str, environment: dict[str, str]
) -> None:
    (job.workspace / "unit").mkdir()
    tests = dict.fromkeys(("test_a.py", "unit/test_b.py"), "def test(): pass\n")
    for name, content in {**tests, **files}.items():
        (job.workspace / name).write_text(content)
    pytest_call = (sys.executable, "-m", "pytest", *command.split())
    usual = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "", "PYTEST_ADDOPTS": ""}
    variables = {**usual, **environment}
    job.stage("pytest", *pytest_call, kind=StageKind.PYTEST, environment=variables)
    assert job.run() == 0, job.log("pytest")
    assert '"when": "call"' in (job.results / "pytest.jsonl").read_text()


DEEPER_THAN_A_PATH = """
import os
[folder] = [path for path in os.environ["PYTHONPATH"].split(":") if "infini-ci-status" in path]
print(folder, flush=True)
os.chdir(folder)
for _ in range(1500):
    os.mkdir("ddd")
    os.chdir("ddd")
"""


def test_a_deep_folder_in_the_agents_own_is_removed(job: Job) -> None:
    job.python("pytest", DEEPER_THAN_A_PATH, kind=StageKind.PYTEST)
    assert job.run() == 0
    assert not Path(job.log("pytest").strip()).exists()


def test_sigterm_ends_the_stage_and_keeps_results(job: Job) -> None:
    job.stage("install", "sh", "-c", "echo ready; sleep 600")
    job.stage("pytest", "true")
    with job.start() as process:
        for event in printed_events(process):
            if event.get("text") == "ready\n":
                process.terminate()
    assert process.returncode == 130
    assert job.finished("install")["interrupted"] is True
    assert job.finished("install")["exit_code"] == 143
    assert job.events("stage_skipped")[0]["reason"] == "not run: interrupted"
    assert job.events("run_finished")[0]["interrupted"] is True
    assert job.events("run_finished")[0]["signal_received"] == signal.SIGTERM
    assert (job.results / "environment.json").exists()


def test_killed_supervisor_leaves_no_end_and_no_process(job: Job) -> None:
    # The stage's parent is its supervisor; its own child must end too.
    job.stage("install", "sh", "-c", "sleep 600 & echo $PPID; sleep 600")
    job.stage("pytest", "true")
    with job.start() as process:
        for event in printed_events(process):
            if event["event"] == "output":
                os.kill(int(event["text"]), signal.SIGKILL)
    assert process.returncode == 1
    assert job.events("stage_finished") == []
    [lost] = job.events("stage_lost")
    assert lost["reason"] == "the supervisor of stage install was killed by SIGKILL"
    assert job.events("stage_skipped")[0]["reason"] == f"not run: {lost['reason']}"
    assert "interrupted" not in job.events("run_finished")[0]
    assert running_in(job.workspace) == []


def test_killed_supervisor_of_a_rerun_ends_the_reruns(job: Job) -> None:
    program = """
import json, os, signal, sys
if any("rerun" in argument for argument in sys.argv):
    os.kill(os.getppid(), signal.SIGKILL)
log = next(it for it in sys.argv if it.startswith("--report-log=")).partition("=")[2]
failed = {"$report_type": "TestReport", "nodeid": "t", "when": "call", "outcome": "failed"}
with open(log, "w") as file:
    print(json.dumps(failed), file=file)
    print(json.dumps({"$report_type": "SessionFinish", "exitstatus": 1}), file=file)
sys.exit(1)
"""
    job.python("pytest", program, kind=StageKind.PYTEST, reruns=3)
    assert job.run() == 1
    [ended] = job.events("reruns_ended")
    assert ended["reason"] == "the supervisor of rerun 1 was killed by SIGKILL"
    assert len(job.events("rerun_started")) == 1


def test_restarted_agent_runs_nothing_a_second_time(job: Job) -> None:
    job.stage("install", "sh", "-c", "echo once")
    assert job.run() == 0
    before = job.events()
    assert job.run() == 1
    assert [event["event"] for event in job.events()[len(before) :]] == ["agent_restarted"]
    assert job.log("install") == "once\n"


def followed(stage: Stage, folder: Path) -> CommandEnd:
    with (folder / "printed").open("wb") as printed:
        output = StageOutput(folder / "log", Printer(printed.fileno()), "build", 1 << 20)
        [end] = follow_stages([FollowedStage(stage, output)])
        output.finish()
    return end


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the agent has no threads
def test_signal_after_the_end_of_a_stage_is_no_error(tmp_path: Path) -> None:
    stage = Stage(StageCommand(["true"], environment={}, workspace=tmp_path, timeout_s=60.0))
    assert followed(stage, tmp_path).exit_code == 0
    stage.end()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the agent has no threads
def test_stopped_supervisor_still_enforces_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "OVERDUE_S", 0.1)
    path = {"PATH": os.environ["PATH"]}
    stage = Stage(StageCommand(["sleep", "600"], path, workspace=tmp_path, timeout_s=0.5))
    os.kill(stage._pid, signal.SIGSTOP)
    assert followed(stage, tmp_path).timed_out


def test_output_held_open_from_outside_does_not_hold_up_the_run(job: Job) -> None:
    os.mkfifo(job.workspace / "go")
    job.stage("build", "sh", "-c", "echo $$; read line <go; echo last")
    with job.start() as process:
        events = printed_events(process)
        pid = next(event["text"].strip() for event in events if event["event"] == "output")
        with Path(f"/proc/{pid}/fd/1").open("wb"):
            (job.workspace / "go").write_text("go\n")
            assert "run_finished" in [event["event"] for event in events]
    assert job.log("build") == f"{pid}\nlast\n"


def test_stage_does_not_outlive_a_killed_agent(job: Job) -> None:
    job.stage("install", "sh", "-c", "echo $$; exec sleep 600")
    with job.start() as process:
        pid = next(int(e["text"]) for e in printed_events(process) if e["event"] == "output")
        process.kill()
    wait_for_end(pid)
    assert job.events("run_finished") == []
    assert job.environment()["machine"] == job.events("run_started")[0]["machine"]


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(b"." * 20_000, id="no line end"),
        pytest.param(b"x" * 1_000_000 + b"\nlast\n", id="line of 1 MB"),
        pytest.param(bytes(range(256)) * 100, id="no UTF-8"),
        pytest.param("caf\u00e9 \N{SNOWMAN} \N{GRINNING FACE}\n".encode() * 5000, id="UTF-8"),
        pytest.param(b"".join(b"line %d\n" % n for n in range(100_000)), id="many lines"),
    ],
)
def test_what_is_printed_is_the_log(job: Job, written: bytes) -> None:
    (job.workspace / "written").write_bytes(written)
    job.stage("build", "cat", "written")
    job.run()
    assert (job.results / "build.log").read_bytes() == written
    assert job.output() == written


def test_printed_lines_fit_an_entry_of_an_engine_s_log(job: Job) -> None:
    (job.workspace / "written").write_bytes(b"line\n" * 100_000 + bytes(range(256)) * 1000)
    job.stage("build", "cat", "written")
    with job.start() as process:
        printed = process.communicate()[0]
    assert max(map(len, printed.splitlines(keepends=True))) <= 16 * 1024
    assert printed.count(b"\n") < 500


def test_flood_is_in_the_log_and_its_end_is_printed(job: Job) -> None:
    count = 200_000
    job.printed_bytes_per_s = 1 << 16
    job.stage("flood", "seq", str(count))
    job.run()
    log = (job.results / "flood.log").read_bytes()
    assert log == b"".join(b"%d\n" % (number + 1) for number in range(count))
    marker = rb"\[([0-9,]+) bytes are only in the whole log\]\n"
    left_out = [int(found.replace(b",", b"")) for found in re.findall(marker, job.output())]
    rest = re.sub(marker, b"", job.output())
    assert left_out
    assert len(rest) + sum(left_out) == len(log)
    assert log.endswith(rest[-4096:])


class Output:
    """A stage's output with a clock of its own, printed to a pipe that no one reads."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        read, self._write = os.pipe()
        self._read = os.fdopen(read, "rb")
        self.printer = Printer(self._write)
        self.stage = StageOutput(
            folder / "log", self.printer, "build", bytes_per_s=1 << 16, clock=lambda: self.now
        )

    def close(self) -> None:
        self.stage.finish()
        os.close(self._write)
        self._read.close()

    def text(self) -> str:
        """Print while there is something to print now; return the text."""
        texts = []
        while self.stage.wait_conditions()[0]:
            self.stage.print_some()
            if not self.printer.busy:
                texts.append(json.loads(self._read.readline())["text"])
        return "".join(texts)


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Output]:
    output = Output(tmp_path)
    yield output
    output.close()


def test_lines_are_printed_together(output: Output) -> None:
    output.now = 1.0
    output.stage.write(b"first\n")
    assert output.text() == "first\n"
    output.stage.write(b"second\n")
    output.stage.write(b"third\nnot whole")
    assert output.text() == ""
    assert output.stage.wait_conditions() == ([], PACE_S)
    output.now += PACE_S
    assert output.text() == "second\nthird\n"


def test_line_without_an_end_is_printed_when_nothing_follows(output: Output) -> None:
    output.now = 1.0
    output.stage.write(b"... 50 %")
    assert output.text() == ""
    output.stage.release_partial_line()
    assert output.text() == "... 50 %"


def test_printing_goes_on_at_its_rate(output: Output) -> None:
    output.now = 1.0
    output.stage.write(b"line\n" * 20_000)
    first = len(output.text())
    assert 1 << 15 < first < 1 << 17
    assert output.stage.wait_conditions() == ([], PACE_S)
    output.now = 2.0
    second = len(output.text())
    output.now = 3.0
    assert first + second + len(output.text()) == 100_000


def test_artifacts_that_the_stages_made_hostile(job: Job) -> None:
    (job.workspace.parent / "secret").write_text("of the host")
    job.python("plant", HOSTILE_ARTIFACTS, environment={"RESULTS": str(job.results)})
    job.artifacts = {
        "generated": "build/generated",
        "secret": "build/unreadable",
        "pipe": "build/pipe",
        "written": "build/written",
        "matches": "build/*",
    }
    assert job.run() == 0
    with tarfile.open(job.results / "generated.tar.gz") as archive:
        found = {member.name: member for member in archive}
    assert all(member.isreg() for member in found.values())
    kept = {"generated/good.h", "generated/hard.h", *(["generated/unreadable"] if ROOT else [])}
    assert found.keys() == kept
    with tarfile.open(job.results / "matches.tar.gz") as archive:
        assert "build/to_secret" not in archive.getnames()
    cut = {event["name"]: event["left_out"] for event in job.events("artifact_cut")}
    # The links, the pipe, the file, and the folder below the deepest one that is read.
    assert cut.pop("generated") == 5 - ROOT
    assert cut.pop("matches") == 1 + (not ROOT)
    assert cut == ({} if ROOT else {"secret": 1})
    [missing] = job.events("artifact_missing")
    assert (missing["name"], missing["path"]) == ("pipe", "build/pipe")
    assert (job.results / "written").read_text() == "mine"
    assert not (job.results / "written").is_symlink()
    assert (job.workspace.parent / "secret").read_text() == "of the host"


ROOT = os.geteuid() == 0  # may read everything
HOSTILE_ARTIFACTS = """
import os
os.makedirs("build/generated")
for name in ("good.h", "unreadable"):
    open("build/generated/" + name, "w").close()
os.link("build/generated/good.h", "build/generated/hard.h")
os.chmod("build/generated/unreadable", 0)
os.symlink("../../../secret", "build/generated/link")
os.symlink("/", "build/generated/root")
os.mkfifo("build/generated/pipe")
folder = os.open("build/generated", os.O_RDONLY)
for _ in range(100):
    os.mkdir("d", dir_fd=folder)
    folder, above = os.open("d", os.O_RDONLY, dir_fd=folder), folder
    os.close(above)
open("build/unreadable", "w").close()
os.chmod("build/unreadable", 0)
os.mkfifo("build/pipe")
os.symlink("../../secret", "build/to_secret")
with open("build/written", "w") as file:
    file.write("mine")
os.symlink("../secret", os.environ["RESULTS"] + "/written")
"""


def test_environment_is_described(job: Job) -> None:
    job.run()
    facts = job.environment()
    tools = {"compiler", "device_compiler", "cmake", "ninja"}
    python = {"python", "packages", "uncompiled", "unpackaged", "unmet", "installed_files", "torch"}
    stack = {"sdk", "libraries", "origins", "torch_builds"}
    run = {"machine", "selection", "options", "compiler_cache"}
    assert set(facts) == {*run, *tools, *python, *stack}
    assert facts["machine"]["instruction_sets"] == machine.instruction_sets()
    assert facts["python"].startswith("3.")
    assert facts["device_compiler"] is None


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors are not described")
def test_cpuid_and_the_kernel_agree_on_instruction_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    by_cpuid = machine.instruction_sets()
    assert by_cpuid
    assert by_cpuid.split()[0] in {*machine.VECTORS, "SSE2"}
    monkeypatch.setattr(machine, "_cpuid", lambda: None)
    assert machine.instruction_sets() == by_cpuid


@pytest.mark.parametrize(
    ("flags", "widest"),
    [
        ("sse2", "SSE2"),
        ("sse4_2 avx fma f16c avx2 avx_vnni", "AVX2 VNNI"),
        ("sse4_2 avx fma f16c avx2 avx512f", "AVX2"),
        ("avx512f avx512dq avx512bw avx512vl avx512_bf16 amx_tile", "AVX-512 BF16 AMX"),
    ],
)
def test_instruction_sets_are_named_by_the_widest_vectors(
    monkeypatch: pytest.MonkeyPatch, flags: str, widest: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(machine, "_cpuid", lambda: set(flags.split()))
    assert machine.instruction_sets() == widest


def test_what_was_asked_to_be_built_is_described(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in filter(machine.OPTIONS.fullmatch, list(os.environ)):
        monkeypatch.delenv(name)
    monkeypatch.setenv("CXXFLAGS", "-O2")
    arguments = {"CMAKE_ARGS": "-DURL=https://user:secret@mirror/x", "INFINI_OPS_TORCH_OPS": "abs"}
    job.stage("install", "true", environment=arguments)
    job.stage("pytest", "true", environment={"CXXFLAGS": "-O0"})
    job.run()
    facts = job.environment()
    assert facts["selection"] == {"operators": "abs"}
    assert facts["options"] == {
        "CMAKE_ARGS": "-DURL=https://***@mirror/x",
        "CXXFLAGS": "-O2 | -O0",
    }


@pytest.mark.parametrize(
    ("fact", "name", "answer", "expected"),
    [
        ("compiler", "clang++", "clang version 14.0.6 $1", "clang version 14.0.6 -m64"),
        (  # what nvcc 13.0 prints
            "device_compiler",
            "nvcc",
            "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88",
            "nvcc: Cuda compilation tools, release 13.0, V13.0.88",
        ),
    ],
)
def test_compilers_are_described(
    job: Job, monkeypatch: pytest.MonkeyPatch, fact: str, name: str, answer: str, expected: str
) -> None:
    compiler = job.workspace / name
    compiler.write_text(f'#!/bin/sh\necho "{answer}"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", f"'{compiler}' -m64")
    monkeypatch.setenv("PATH", f"{job.workspace}:{os.environ['PATH']}")
    job.device_compiler = "nvcc"
    job.run()
    assert job.environment()[fact] == expected


@pytest.mark.parametrize("protocol", [PROTOCOL + 1, PROTOCOL - 1, None])
def test_unknown_protocol_is_refused(
    job: Job, capfd: pytest.CaptureFixture[str], protocol: int | None
) -> None:
    job.protocol = protocol
    assert job.run() == 1
    assert f"agent: job protocol {protocol}, expected {PROTOCOL}" in capfd.readouterr().err


@pytest.mark.parametrize("module", agent_modules())
def test_old_pythons_know_its_syntax_and_modules(module: str) -> None:
    tree = ast.parse((REPOSITORY / module).read_text(), feature_version=(3, 8))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {alias.name.partition(".")[0] for node in imports for alias in node.names}
    sent = {path[: -len(".py")].replace("/", ".") for path in agent_modules()}
    modules = {
        # What is imported from a package is a module of it.
        f"{node.module}.{alias.name}" if f"{node.module}.__init__" in sent else str(node.module)
        for node in froms
        if node.level == 0
        for alias in node.names
    }
    assert {name for name in modules if name.startswith("ci.")} <= sent
    names |= {name.partition(".")[0] for name in modules} - {"ci"}
    # Which pytest alone imports.
    ours = {"pytest"} if Path(module).name in ("status_plugin.py", "shard_plugin.py") else set()
    assert names <= OLD_MODULES | ours


def test_its_own_version_of_python_finds_it_compiled(tmp_path: Path) -> None:
    program = tmp_path / "agent.pyz"
    program.write_bytes(agent_archive())
    # Of a module that is compiled when it is imported, the name begins with that of the archive.
    code = zipimporter(str(program)).get_code("ci/agent/run")
    names = {it.co_filename for it in (code, *code.co_consts) if isinstance(it, CodeType)}
    assert names == {"ci/agent/run.py"}


def test_holes_of_a_copied_file_stay_holes(tmp_path: Path) -> None:
    content = b"begin" + bytes(5 << 20) + b"end" + bytes(3 << 20)
    (tmp_path / "a").write_bytes(content)
    with (tmp_path / "a").open("rb") as source, (tmp_path / "b").open("wb") as target:
        copy_file(source, target)
    assert (tmp_path / "b").read_bytes() == content
    assert (tmp_path / "b").stat().st_blocks * 512 <= 3 << 20


def test_artifact_of_a_tebibyte_is_left_out(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "results").mkdir()
    lack = collect(ArtifactPlan(name="large", path="a"), tmp_path, tmp_path / "results")
    assert lack == ArtifactCut(name="large", path="a", left_out=1)
    assert list((tmp_path / "results").iterdir()) == []


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_stage_on_a_disk_that_is_nearly_full(job: Job, exit_code: int) -> None:
    job.stage("build", "sh", "-c", f"exit {exit_code}")
    with limited(job.results, DISK):
        fill(job.results)
        filler = job.results / "filler"
        os.truncate(filler, filler.stat().st_size - LEAST_FREE // 2)
        assert job.run() == (DISK_FULL if exit_code else 0)
        assert job.finished("build")["exit_code"] == exit_code
        found = [event["text"] for event in job.events("disk_full")]
    text = f"build met a full disk; room that {job.results} had at its end: "
    assert [it.startswith(text) for it in found] == [True] * exit_code


def test_a_disk_on_which_the_agent_cannot_write(job: Job) -> None:
    job.stage("build", "true")
    with limited(job.results, DISK):
        fill(job.results)
        assert job.run() == DISK_FULL
