"""Platforms side by side: what happens to one of them never happens to the others."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ci.engines import EngineMachine, EngineMessage, Observer
from ci.errors import CiError, ConfigError, ExitCode, InfrastructureError, UsageError
from ci.facts.result_files import ResultFiles
from ci.facts.sentences import on_harness, on_stages
from ci.gates.rules import exit_code
from ci.model.execution import ExecutionFacts, ImageFacts
from ci.model.plan import EnginePlan, RunPlan
from ci.model.results import RunResult
from ci.model.verdicts import Harness, Product
from ci.plan.request import load_request
from ci.run.progress import Progress
from ci.run.records import Records
from ci.util.invocation import REPOSITORY
from tests.cases import narrowed
from tests.ci.hostile import LONGEST, suite
from tests.ci.local_engine import LocalEngine
from tests.ci.workplace import CONFIG, Workplace, new_workplace
from tests.findings import finding

THREE = ("cpu", "moore", "ascend")


class OddEngine(LocalEngine):
    """Does something of its own for some platforms, when it prepares or executes."""

    def __init__(self, record: Path, **odd: Callable[[], object]) -> None:
        super().__init__(record=record, containers=False)
        self.odd = odd

    def check(self, plan: RunPlan) -> None:
        self.odd.get(f"check_{plan.platform}", bool)()

    def prepare(self, plan: RunPlan, observer: Observer) -> ImageFacts:
        image = super().prepare(plan, observer)
        self.odd.get(f"prepare_{plan.platform}", bool)()
        return image

    def execute(self, plan: RunPlan, image: ImageFacts, observer: Observer) -> ExecutionFacts:
        facts = super().execute(plan, image, observer)
        self.odd.get(f"execute_{plan.platform}", bool)()
        return facts


def three(folder: Path) -> Workplace:
    workplace = new_workplace(folder)
    accelerators = "".join(f"\n  {name}: {{devices: {{count: 0}}}}" for name in THREE[1:])
    workplace.write("ci.yaml", CONFIG.replace("cpu: {}", f"cpu: {{}}{accelerators}"))
    return workplace


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    return three(tmp_path)


def odd(work: Workplace, **what: Callable[[], object]) -> OddEngine:
    work.new_engine()
    work.engine = OddEngine(work.engine.record, **what)
    return work.engine


def raises(error: Exception) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt(times: int = 1) -> None:
    """As Ctrl-C does: the parent gets it, and passes it on."""
    for _ in range(times):
        os.kill(os.getppid(), signal.SIGINT)
        signal.sigtimedwait([signal.SIGUSR1], 60)  # ended by what the parent passes on


def products(result: RunResult) -> dict[str, str]:
    return {platform.platform: platform.verdict.product for platform in result.platforms}


MEET = """\
import os
for mode in ('rb', 'wb') if os.environ['INFINI_CI_PLATFORM'] == 'cpu' else ('wb', 'rb'):
    open({!r}, mode).close()  # waits for the other
"""


def test_platforms_run_at_the_same_time(work: Workplace) -> None:
    odd(work)
    meeting = work.folder / "meeting"
    os.mkfifo(meeting)
    work.write("build.py", MEET.format(str(meeting)))
    result, _ = work.run(platforms=["cpu", "moore"])
    assert set(products(result).values()) == {"passed"}


def test_never_more_at_once_than_asked_for(work: Workplace) -> None:
    engine = odd(work)
    result, _ = work.run(platforms=THREE, jobs=1)
    assert exit_code(result.platforms) == ExitCode.PASSED
    one_by_one = [[f"prepare {name}", f"execute {name}"] for name in THREE]
    calls = engine.calls
    assert sorted(zip(calls[::2], calls[1::2], strict=True)) == sorted(map(tuple, one_by_one))


SITE = """\
engines:
  other: {docker_host: unix:///run/other.sock}
platforms:
  moore: {engine: other}
"""


@pytest.mark.parametrize("site", ["", SITE], ids=["one name", "two names of one engine"])
def test_an_engine_carries_as_many_as_it_has_processors(work: Workplace, site: str) -> None:
    work.write("ci.site.yaml", site)
    engine = odd(work)
    one = EngineMachine(identity="here", processors=1)
    engine.machine = lambda: one  # type: ignore[method-assign]
    work.run(platforms=THREE)
    calls = engine.calls
    pairs = zip(calls[::2], calls[1::2], strict=True)
    assert all(first.split()[1] == second.split()[1] for first, second in pairs)
    assert "waits for its turn on engine docker" in work.output()


def test_a_worker_that_dies_costs_its_own_platform_only(work: Workplace) -> None:
    odd(work, prepare_moore=die, execute_ascend=die)
    result, _ = work.run(platforms=THREE)
    cpu, moore, ascend = (platform.verdict for platform in result.platforms)
    assert cpu.product is Product.PASSED
    assert (moore.product, moore.harness) == (Product.NOT_RUN, Harness.INFRASTRUCTURE)
    assert (ascend.product, ascend.harness) == (Product.PASSED, Harness.LOST)  # it had ended
    reason = "the worker process of this platform died: SIGKILL"
    assert [evidence.text for evidence in moore.evidence] == [reason]
    assert reason in result.platforms[2].notes
    assert exit_code(result.platforms) == ExitCode.INFRASTRUCTURE


def test_a_platform_that_cannot_begin_leaves_the_others_alone(work: Workplace) -> None:
    odd(work, check_cpu=raises(ConfigError("platforms.cpu: got too little", remedy="Say more.")))
    result, _ = work.run(platforms=THREE)
    assert products(result) == {"cpu": "not_run", "moore": "passed", "ascend": "passed"}
    assert result.platforms[0].findings == (
        on_stages.not_run("platforms.cpu: got too little (Say more.)"),
    )
    assert "CPU: platforms.cpu: got too little (Say more.)\n" in work.output()
    assert exit_code(result.platforms) == ExitCode.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("second", "kind"),
    [(UsageError("unknown engine"), UsageError), (InfrastructureError("no"), InfrastructureError)],
)
def test_where_none_can_begin_nothing_is_run(
    work: Workplace, second: CiError, kind: type[CiError]
) -> None:
    first = ConfigError("got too little", remedy="Say more.")

    def answer_last() -> None:
        for name in THREE[1:]:
            process = Path("/proc") / (work.folder / name).read_text()
            while process.exists():  # until the parent has taken its answer
                os.sched_yield()
        raise first

    def answer(name: str, error: CiError) -> Callable[[], object]:
        os.mkfifo(work.folder / name)

        def refuse() -> None:
            (work.folder / name).write_text(str(os.getpid()))
            raise error

        return refuse

    odd(
        work,
        check_cpu=answer_last,
        check_moore=answer("moore", first),
        check_ascend=answer("ascend", second),
    )
    with pytest.raises(kind, match=f"^cpu, moore: got too little\nascend: {second}$") as error:
        work.run(platforms=THREE)
    assert error.value.remedy == "Say more."
    assert not work.results.exists()


def test_engines_are_told_apart(work: Workplace) -> None:
    odd(work)

    def connect(plan: EnginePlan) -> LocalEngine:
        if plan.name == "auto":
            return work.engine
        raise InfrastructureError("no Docker Engine answers")

    work.write("ci.site.yaml", "platforms:\n  moore: {engine: docker}\n")
    result, run = work.run(platforms=THREE, connect=connect)
    assert products(result) == {"cpu": "passed", "moore": "not_run", "ascend": "passed"}
    assert run.request.engines == {"cpu": "docker", "ascend": "docker"}
    assert result.engine == "docker"


@pytest.mark.parametrize(
    ("name", "joined"),
    [
        ("lab-a", "docker, lab-a"),
        ("a-machine-far-away-in-the-lab", "docker, a-machine-far-away-in-t\N{HORIZONTAL ELLIPSIS}"),
    ],
)
def test_two_engines_have_both_their_names(work: Workplace, name: str, joined: str) -> None:
    odd(work)
    site = "engines:\n  {0}: {{context: x}}\nplatforms:\n  moore: {{engine: {0}}}\n"
    work.write("ci.site.yaml", site.format(name))
    result, _ = work.run(platforms=THREE)
    assert result.engine == joined


def test_one_interrupt_ends_all(work: Workplace) -> None:
    begun = work.folder / "begun"

    def second_interrupts() -> None:
        try:
            begun.mkdir()
        except FileExistsError:
            interrupt()
        signal.pause()

    odd(work, **{f"prepare_{name}": second_interrupts for name in THREE})
    result, run = work.run(platforms=THREE, jobs=2)
    assert run.interrupted
    notes = sorted((it.findings[0] for it in result.platforms), key=lambda it: it.text)
    while_prepared = on_stages.not_run("the run was interrupted while the image was prepared")
    assert notes == [
        on_stages.not_run("the run was interrupted before this platform started"),
        while_prepared,
        while_prepared,
    ]


def test_an_interrupt_before_the_worker_has_its_handlers_is_no_crash(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt_both() -> None:
        for process in (os.getppid(), os.getpid()):
            os.kill(process, signal.SIGINT)  # blocked in the worker until it has its handlers

    monkeypatch.setattr("ci.run.workers.end_with_parent", interrupt_both)
    odd(work)
    with pytest.raises(KeyboardInterrupt):  # no platform has started: there is nothing to store
        work.run()


def test_the_third_interrupt_ends_a_program_that_hangs(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ci.run.workers.LAST_GRACE_S", 0.1)

    def hang() -> None:
        for _ in range(3):
            with suppress(KeyboardInterrupt):
                interrupt()
        signal.pause()

    odd(work, prepare_cpu=hang)
    result, run = work.run()
    assert run.interrupted
    [evidence] = result.platforms[0].verdict.evidence
    assert evidence.text == "the worker process of this platform died: SIGKILL"


def test_the_fourth_interrupt_ends_a_program_that_ignores_interrupts(work: Workplace) -> None:
    def hang() -> None:
        for _ in range(4):
            try:
                interrupt()
            except KeyboardInterrupt:
                continue

    odd(work, prepare_cpu=hang)
    result, run = work.run(platforms=["cpu"])
    assert run.interrupted
    assert result.platforms[0].notes[0].endswith("died: SIGKILL")


def test_results_that_cannot_be_saved_say_where_and_how_to_go_on(work: Workplace) -> None:
    def in_the_way() -> None:
        path = work.results / "latest" / "results.json"
        path.unlink()
        path.mkdir()

    odd(work, execute_cpu=in_the_way)
    with pytest.raises(InfrastructureError, match=r"cannot be saved: .*results\.json$") as caught:
        work.run(platforms=["cpu"])
    run_id = (work.results / "latest").readlink().name
    command = f"python -m ci run --resume {run_id} --results {work.results}"
    assert str(caught.value.remedy).endswith(command)
    (work.results / run_id / "results.json").rmdir()
    odd(work)
    result, _ = work.run(load_request(work.results, run_id))
    assert result.platforms[0].verdict.product is Product.PASSED


def test_resuming_goes_on_with_what_is_missing(work: Workplace) -> None:
    def second_is_interrupted() -> None:
        if len(engine.calls) == 3:
            interrupt()

    engine = odd(work, **{f"prepare_{name}": second_is_interrupted for name in THREE})
    first, run = work.run(platforms=THREE, jobs=1)
    finished = engine.calls[0].split()[1]
    assert list(products(first).values()).count("passed") == 1
    assert first.platform(finished).verdict.product is Product.PASSED
    engine = odd(work)
    second, _ = work.run(load_request(work.results, run.request.run_id))
    assert set(products(second).values()) == {"passed"}
    assert {call.split()[1] for call in engine.calls} == {*THREE} - {finished}
    assert second.platform(finished) == first.platform(finished)
    with work.open_store() as store:
        assert [len(store.tests(first.run_id, name)) for name in THREE] == [1, 1, 1]


CALLER = """
import os, signal, sys
from pathlib import Path

sys.path.insert(0, sys.argv[2])
from tests.ci.run.test_workers import THREE, odd, three

def second_hangs():
    if len(engine.calls) == 3:
        (work.folder / "hanging").write_text(str(os.getpid()))
        signal.pause()

work = three(Path(sys.argv[1]))
engine = odd(work, **{f"prepare_{name}": second_hangs for name in THREE})
work.run(platforms=THREE, jobs=1)
"""


def test_a_killed_parent_takes_its_workers_along(work: Workplace) -> None:
    hanging = work.folder / "hanging"
    os.mkfifo(hanging)
    command = [sys.executable, "-c", CALLER, str(work.folder), str(REPOSITORY)]
    caller = subprocess.Popen(command)
    worker = os.pidfd_open(int(hanging.read_text()))
    caller.kill()
    caller.wait()
    assert select.select([worker], [], [], 30)[0]  # its end
    os.close(worker)
    [run_id] = {path.name for path in work.results.glob("*-*")}
    work.new_engine()
    engine = odd(work)
    result, _ = work.run(load_request(work.results, run_id))
    assert set(products(result).values()) == {"passed"}
    assert len(engine.calls) == 2 * len(("prepare", "execute")) + len(("resume",) * 2)


def test_what_one_platform_writes_is_its_own_row(work: Workplace) -> None:
    """The innocent one passes, and resuming does not die of it either."""
    hostile = suite("stdout", "pytest.jsonl", "events.jsonl")
    work.write("tests/hostile.txt", hostile)
    choose = (
        "import os\nif os.environ['INFINI_CI_PLATFORM'] == 'moore':\n    exec(open({!r}).read())"
    )
    text = choose.format(str(work.folder / "source" / "tests" / "hostile.txt"))
    work.write("tests/test_a.py", f"{text}\nelse:\n    def test_a(): pass\n")
    odd(work)
    result, run = work.run(platforms=["cpu", "moore"])
    assert products(result) == {"cpu": "passed", "moore": "incomplete"}
    evidence = result.platform("moore").verdict.evidence
    assert finding(on_harness.unreadable_lines, source="log").is_in(evidence)
    for place in ("events", "output"):
        assert finding(on_harness.unreadable_lines, source=place, lines=4).is_in(evidence)
    assert finding(on_harness.unreadable_lines, longest=LONGEST).is_in(evidence)
    assert exit_code(result.platforms) == ExitCode.PRODUCT_FAILURE
    log = run.records.folder / "moore" / "agent.log"
    assert log.read_text().startswith('{"event":"stage_started"}\n')
    odd(work)
    second, _ = work.run(load_request(work.results, run.request.run_id))
    assert products(second) == products(result)


FAULTS = (KeyError("stage"), RecursionError("too deep"), MemoryError(), ValueError("a bug"))


@pytest.mark.parametrize("fault", narrowed(FAULTS, kept=1), ids=lambda it: type(it).__name__)
def test_a_fault_in_a_worker_is_its_platforms_row(work: Workplace, fault: Exception) -> None:
    odd(work, prepare_moore=raises(fault))
    result, _ = work.run(platforms=["cpu", "moore"])
    assert products(result) == {"cpu": "passed", "moore": "not_run"}
    assert result.platform("moore").findings == (
        on_stages.not_run(f"{type(fault).__name__}: {fault}"),
    )
    assert exit_code(result.platforms) == ExitCode.INFRASTRUCTURE


read_log = vars(ResultFiles)["log"].func


def of_moore(function: Callable[..., Any], fault: Exception) -> Callable[..., Any]:
    """``function``, but it fails for one platform."""

    def guarded(*arguments: Any, **named: Any) -> Any:
        if "moore" in repr(arguments).lower():
            raise fault
        return function(*arguments, **named)

    return guarded


@pytest.mark.parametrize("fault", narrowed(FAULTS, kept=1), ids=lambda it: type(it).__name__)
def test_a_platform_without_a_verdict_is_still_a_row(
    work: Workplace, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    odd(work)
    with monkeypatch.context() as patch:
        patch.setattr(ResultFiles, "log", property(of_moore(read_log, fault)))
        result, run = work.run(platforms=["cpu", "moore"])
        assert result.platform("cpu").verdict.product is Product.PASSED
        verdict = result.platform("moore").verdict
        assert (verdict.product, verdict.harness) == (Product.INCOMPLETE, Harness.INFRASTRUCTURE)
        assert f"its results cannot be read: {type(fault).__name__}" in verdict.evidence[0].text
        assert exit_code(result.platforms) == ExitCode.INFRASTRUCTURE
        assert "Traceback (most recent call last)" in work.output()
        odd(work)
        again, _ = work.run(load_request(work.results, run.request.run_id))
        assert products(again) == products(result)
    odd(work)
    last, _ = work.run(load_request(work.results, run.request.run_id))
    assert set(products(last).values()) == {"passed"}


def test_an_event_that_cannot_be_shown_ends_nothing(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd(work)
    monkeypatch.setattr(Progress, "event", of_moore(Progress.event, KeyError("stage")))
    result, _ = work.run(platforms=["cpu", "moore"])
    assert set(products(result).values()) == {"passed"}
    assert "Moore: KeyError: 'stage'" in work.output()


def test_a_row_that_cannot_be_written_is_replaced(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(self: Records, result: RunResult) -> None:
        if result.platform("moore").verdict.product is Product.PASSED:
            raise TypeError("nothing that JSON knows")
        records_save(self, result)

    odd(work)
    records_save = Records.save
    monkeypatch.setattr(Records, "save", save)
    result, _ = work.run(platforms=["cpu", "moore"])
    assert products(result) == {"cpu": "passed", "moore": "incomplete"}
    note = "not judged: its results cannot be written: TypeError: nothing that JSON knows"
    assert result.platform("moore").notes == (note,)


def test_what_cannot_be_restored_ends_no_resumed_run(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd(work, prepare_cpu=raises(InfrastructureError("no space left")))
    _, run = work.run(platforms=["cpu", "moore"])
    (work.results / "ci.db").unlink()
    odd(work)
    monkeypatch.setattr(ResultFiles, "log", property(of_moore(read_log, RecursionError("deep"))))
    result, _ = work.run(load_request(work.results, run.request.run_id))
    assert set(products(result).values()) == {"passed"}
    assert "Moore: RecursionError: deep" in work.output()


class Unreadable:
    """What can be sent, and not read."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return int, ("no number",)


def test_a_worker_that_sends_unreadable_events_is_ended(work: Workplace) -> None:
    class OddlySpoken(OddEngine):
        def prepare(self, plan: RunPlan, observer: Observer) -> ImageFacts:
            if plan.platform == "moore":
                observer.event(EngineMessage(Unreadable()))  # type: ignore[arg-type]
                signal.pause()
            return super().prepare(plan, observer)

    work.new_engine()
    work.engine = OddlySpoken(work.engine.record)
    result, _ = work.run(platforms=["cpu", "moore"])
    assert products(result) == {"cpu": "passed", "moore": "not_run"}
    [note] = result.platform("moore").notes
    assert note.startswith(
        "not run: a message of its worker process cannot be read: ValueError: invalid"
    )
