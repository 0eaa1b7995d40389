"""The mutation check itself: its plan, and which failures count as proof."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cases import narrowed
from tools.mutants.__main__ import main
from tools.mutants.faults import FAULTS, Fault, PlantingError, Site, Sources, replace_once
from tools.mutants.plan import (
    ROOT,
    Mutant,
    all_faults,
    choose_site,
    make_mutant,
    plan,
    read_sources,
)
from tools.mutants.report import Verdict, as_markdown
from tools.mutants.sandbox import environment_with
from tools.mutants.stages import STOP, beyond_suite, failures_about, stages, subject_of
from tools.mutants.suite import OperatorSuite, Reproduction, read_report


@pytest.fixture(scope="module")
def sources() -> Sources:
    return read_sources()


@pytest.fixture(scope="module")
def mutants(sources: Sources) -> list[Mutant]:
    return plan(sources, 1, FAULTS)


class TestPlan:
    def test_half_of_at_least_60_are_drawn(self) -> None:
        names = [fault.name for fault in all_faults()]
        assert len({*names}) == len(names) >= 60
        assert len(names) - len(FAULTS) >= len(names) / 2

    def test_one_seed_gives_one_plan(self, sources: Sources, mutants: list[Mutant]) -> None:
        again = plan(sources, 1, FAULTS[3:6])
        assert [mutant.diff() for mutant in again] == [mutant.diff() for mutant in mutants[3:6]]

    def test_another_seed_mutates_other_operators(
        self, sources: Sources, mutants: list[Mutant]
    ) -> None:
        sites = [(it.site.subject, it.site.what) for it in mutants]
        others = [choose_site(sources, fault, 2) for fault in FAULTS]
        changed = [a != (b.subject, b.what) for a, b in zip(sites, others, strict=True)]
        assert sum(changed) >= 18  # the hand-written tables have few places

    def test_every_mutant_changes_the_lines_of_one_thing(self, mutants: list[Mutant]) -> None:
        for mutant in mutants:
            lines = mutant.diff().splitlines()
            assert any(line.startswith("-") and line[:3] != "---" for line in lines), mutant.fault
            assert len(lines) < 200, mutant.fault

    def test_every_place_of_a_hand_written_source_is_there_once(self, sources: Sources) -> None:
        first = [fault.name for fault in FAULTS].index("wrong-data-type")
        for fault in FAULTS[first:]:
            for site in fault.sites(sources):
                assert make_mutant(sources, fault.name, site).diff()

    def test_aliases_are_not_wrong_kernels(self, sources: Sources) -> None:
        (fault,) = [fault for fault in FAULTS if fault.name == "wrong-kernel"]
        pairs = {(site.subject, site.what) for site in fault.sites(sources)}
        assert ("abs.out", "calls neg.out") in pairs
        assert ("abs.out", "calls absolute.out") not in pairs
        assert ("floor.out", "calls trunc.out") in pairs


class TestRefusals:
    def test_a_text_that_has_changed_is_named(self) -> None:
        with pytest.raises(PlantingError, match=r"shells\.cc: found this text 0 times"):
            replace_once("a new text", "an old text", "", "src/torch/shells.cc")

    def test_a_text_that_is_there_twice_is_named(self) -> None:
        with pytest.raises(PlantingError, match="found this text 2 times"):
            replace_once("twice twice", "twice", "once", "a.cc")

    def test_a_fault_that_changes_nothing_is_no_mutant(self, sources: Sources) -> None:
        def plant() -> Mapping[str, str]:
            return {"CMakeLists.txt": (sources.root / "CMakeLists.txt").read_text()}

        site = Site(subject="CMakeLists.txt", operator=None, what="nothing", plant=plant)
        with pytest.raises(PlantingError, match=r"idle in CMakeLists\.txt changes nothing"):
            make_mutant(sources, "idle", site)

    def test_a_fault_that_fits_nowhere_is_named(self, sources: Sources) -> None:
        with pytest.raises(PlantingError, match="nowhere: found no site"):
            plan(sources, 1, [Fault(name="nowhere", sites=lambda _: iter(()))])

    def test_an_unknown_fault_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--list", "--only", "lost-strides"]) == 2
        assert "--only: got lost-strides, expected some of exchanged" in capsys.readouterr().err

    def test_a_folder_that_is_in_use_is_left_alone(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "foreign").touch()
        assert main(["--only", "lost-stride", "--work-dir", str(tmp_path)]) == 2
        assert "is not empty" in capsys.readouterr().err


def test_the_plan_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--only", "wrong-kernel", "--only", "lost-stride"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["wrong-kernel", "lost-stride"]


def report_line(test: str, outcome: str = "passed", text: str = "") -> str:
    fields = {"nodeid": test, "outcome": outcome, "longrepr": text, "sections": []}
    return json.dumps({"$report_type": "TestReport", **fields}) + "\n"


class TestProof:
    def test_a_test_is_about_the_overload_in_its_name(self) -> None:
        assert subject_of("test_torch_ops.py::test[add.out-float32-cpu-slot8]") == "add.out"
        assert subject_of("test_boundary_memory.py::test_strides[add.out]") == "add.out"
        assert subject_of("test_api.py::test_calls") is None

    def test_the_tests_of_its_file_run_first_and_others_after_the_suite(self) -> None:
        site = Site(subject="src/cpu/cat.cc", operator=None, what="nothing", plant=dict)
        mutant = Mutant(fault="cat-1", site=site, files={}, originals={})
        first, suite, beyond = stages(mutant, frozenset({"a.py::general"}), frozenset())
        assert first[0] == "tests/ops/test_native_values.py"
        assert (suite, beyond[3]) == (("tests/ops",), "tests/cpu/test_parallel.py")
        for test in (*first, *beyond_suite([mutant])[2:]):
            assert (ROOT / test).exists()

    def test_the_suite_is_not_run_on_the_library_without_a_fault(self) -> None:
        site = Site(subject="codegen/cli.py", operator=None, what="nothing", plant=dict)
        mutant = Mutant(fault="generator-1", site=site, files={}, originals={})
        tests = ("-m", "not complete", "tests/codegen")
        assert stages(mutant, frozenset(), frozenset(), library_differs=False) == [tests]

    def test_its_own_tests_run_first_and_the_whole_suite_last(self, mutants: list[Mutant]) -> None:
        mutant = mutants[0]
        own, other = (f"a.py::t[{name}-int]" for name in (mutant.site.subject, "abs.out"))
        tests = frozenset({own, other, "a.py::general", "b.py::t[other]"})
        overloads = frozenset({mutant.site.subject, "abs.out"})
        assert stages(mutant, tests, overloads) == [(own,), ("b.py",), ("tests/ops",)]

    def test_a_failure_of_another_operator_catches_nothing(self, mutants: list[Mutant]) -> None:
        mutant = mutants[0]
        assert mutant.site.operator is not None
        name = mutant.site.operator.name
        failures = {
            "a.py::test[unrelated.out]": "expected 1, got 2",
            "a.py::test_all": f"the parameters of {name} differ",
            "a.py::test_longer_name": f"un{name}ed",
            f"b.py::test[{mutant.site.subject}-int]": "expected 1, got 2",
        }
        assert failures_about(mutant, failures) == [
            f"b.py::test[{mutant.site.subject}-int]",
            "a.py::test_all",
        ]

    def test_a_test_whose_process_died_has_failed(self, tmp_path: Path) -> None:
        log = tmp_path / "report.jsonl"
        crash = "worker 'gw0' crashed while running 'a.py::test[abs.out]'"
        log.write_text(
            report_line("a.py::test[neg.out]") + report_line("a.py::test[abs.out]", "failed", crash)
        )
        tests, failures = read_report(log)
        assert tests == {"a.py::test[neg.out]", "a.py::test[abs.out]"}
        assert "crashed" in failures["a.py::test[abs.out]"]

    def test_a_survivor_is_shown_with_its_exact_change(self, mutants: list[Mutant]) -> None:
        again = Reproduction(reason="assert 1 == 2", command="rerun", fails=True)
        tests = ("tests/ops/a.py::test", "another")
        caught = Verdict(mutant=mutants[0], caught_by=tests, reproduction=again)
        survivor = Verdict(mutant=mutants[1])
        text = as_markdown([caught, survivor], seed=1, torch="2.13", seconds=61, cpu_seconds=99)
        assert "1 of 2 mutants caught, 0 equivalent, in 61 s (99 CPU-s)" in text
        assert "| a.py::test and 1 more | assert 1 == 2 | yes | 0.0 |" in text
        assert f"## {mutants[1].fault}: nothing: the mutant survives\n\n```diff\n--- " in text
        assert mutants[1].diff() in text

    def test_an_equivalent_mutant_is_listed_with_the_argument(self, mutants: list[Mutant]) -> None:
        verdict = Verdict(mutant=replace(mutants[0], equivalent="it only costs time"))
        assert verdict.problem is None
        text = as_markdown([verdict], seed=1, torch="2.13", seconds=1, cpu_seconds=1)
        assert "0 of 1 mutants caught, 1 equivalent, in 1 s" in text
        assert "| equivalent: it only costs time |" in text

    def test_what_the_suite_cannot_catch_needs_no_command_of_a_run(
        self, mutants: list[Mutant]
    ) -> None:
        verdict = Verdict(mutant=mutants[0], caught_by=("tests/native/a.py::t",), in_suite=False)
        assert verdict.problem is None

    def test_a_mutant_that_could_not_be_tried_is_not_caught(self, mutants: list[Mutant]) -> None:
        verdict = Verdict(mutant=mutants[0], caught_by=("a.py::test",))
        assert verdict.is_caught
        assert not replace(verdict, error="it does not compile").is_caught

    @pytest.mark.parametrize(
        ("reason", "fails", "problem"),
        [
            ("out: expected 1.0, got 2.0", True, None),
            ("out: expected 1.0, got 2.0", False, "its command does not fail again: rerun a"),
            ("assert False", True, "its reason does not show what differs: 'assert False'"),
            ("", True, "its reason does not show what differs: ''"),
        ],
    )
    def test_a_failure_must_show_what_differs_and_fail_again(
        self, mutants: list[Mutant], reason: str, fails: bool, problem: str | None
    ) -> None:
        again = Reproduction(reason=reason, command="rerun a", fails=fails)
        verdict = Verdict(mutant=mutants[0], caught_by=("a.py::test",), reproduction=again)
        assert verdict.problem == problem
        assert replace(verdict, reproduction=None).problem


SUITE = """\
import os, pathlib, pytest
def test_fails(): assert [1, 2] == [1, 3]
def test_dies(): os.kill(os.getpid(), 11)
def test_fails_once():
    done = pathlib.Path("done")
    was = done.exists()
    done.touch()
    assert was, "the first time"
"""


class TestReproduction:
    """With a suite of its own, and the real agent, verdict and command."""

    def suite(self, folder: Path, **files: str) -> OperatorSuite:
        tests = folder / "tree" / "tests" / "ops"
        tests.mkdir(parents=True)
        for name, text in files.items():
            (tests / f"{name}.py").write_text(text)
        # Hypothesis, which no suite here needs, would take a third of the start of each process.
        ini = "[pytest]\naddopts = -p no:hypothesispytest\n"
        (folder / "tree" / "pytest.ini").write_text(ini)
        return OperatorSuite(
            tree=folder / "tree",
            results=folder / "results",
            environment=environment_with(folder),
            timeout_s=60,
        )

    def test_a_failed_test_and_one_that_kills_its_worker(self, tmp_path: Path) -> None:
        suite = self.suite(tmp_path, test_a=SUITE)
        outcome = suite.run("-q", "-n", "1", "tests/ops", report="first")
        found = {it.test: suite.reproduce(it, "again") for it in outcome.result.failures}
        reasons = {str(test).rpartition("::")[2]: it.reason for test, it in found.items()}
        assert reasons == {
            "test_fails": "assert [1, 2] == [1, 3]",
            "test_dies": "its process died",
            "test_fails_once": "the first time: assert False",
        }
        once = "tests/ops/test_a.py::test_fails_once"
        assert [test for test, it in found.items() if it.problem] == [once]
        assert found[once].command == f"python -m ci rerun RUN cpu {once}"

    @pytest.mark.parametrize("name", narrowed(["conftest", "test_b"], kept=1))
    def test_a_suite_that_cannot_be_collected(self, tmp_path: Path, name: str) -> None:
        suite = self.suite(tmp_path, test_a=SUITE, **{name: "raise OSError('no such symbol')"})
        outcome = suite.run("-q", "-n", "1", "tests/ops", report="first")
        failure = outcome.result.failures[0]
        assert outcome.first_failure(()) in (failure, None)
        again = suite.reproduce(failure, "again")
        assert (again.reason, again.problem) == ("OSError: no such symbol", None)

    def test_one_death_of_a_process_is_enough(self, tmp_path: Path) -> None:
        tests = "".join(f"def test_{number}(): os.kill(os.getpid(), 11)\n" for number in range(9))
        suite = self.suite(tmp_path, test_a=f"import os\n{tests}")
        outcome = suite.run("-q", "-n", "1", *STOP, "tests/ops", report="first")
        assert len(outcome.failures) == 1
        failure = outcome.first_failure(outcome.failures)
        assert failure is not None
        assert suite.reproduce(failure, "again").problem is None

    def test_a_suite_that_hangs_is_ended(self, tmp_path: Path) -> None:
        hangs = "import signal\ndef test_hangs(): signal.pause()\n"
        suite = replace(self.suite(tmp_path, test_a=hangs), timeout_s=5)
        assert suite.run("-q", "-n", "1", "tests/ops", report="first").ended_by_limit
