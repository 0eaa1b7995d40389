"""The benchmark's own arithmetic, tables and instruments; nothing here is timed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from bench import __main__ as cli
from bench.compiler_launcher import main as launch
from bench.context import CommandCost, Context, without_compiler_cache
from bench.interleaved import Interleaved
from bench.parts.build import profile_table
from bench.parts.calls import import_table
from bench.parts.kernels import (
    LIMITS,
    Figures,
    Timings,
    confirmed,
    limits_to,
    slot_times_text,
    slowness,
    summary_rows,
    usable_isas,
)
from bench.report import BenchReport, Conditions, as_json, as_markdown, describe_machine
from bench.rows import Measurement, MeasurementError, Summary, medians_by_round, summarize
from ci.util.process import ProcessError
from codegen.slots import measured_orders


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(
        scratch=tmp_path,
        output_dir=tmp_path / "out",
        repeat=1,
        installed=False,
        runs=3,
        database=None,
    )


class TestStatistics:
    def test_the_interval_leaves_two_and_a_half_per_cent_out_on_each_side(self) -> None:
        summary = summarize(range(1000, -1, -1))
        assert (summary.low, summary.median, summary.high) == (25, 500, 975)

    def test_the_interval_of_one_value_is_that_value(self) -> None:
        assert summarize([3.0]) == Summary(median=3.0, low=3.0, high=3.0)

    def test_medians_by_round_are_over_the_operators(self) -> None:
        assert medians_by_round([[1, 10], [2, 50], [9, 20]]) == [2, 20]


class TestInterleaved:
    def test_variants_take_turns_in_loops_that_are_long_enough(self) -> None:
        timed: list[tuple[str, int]] = []

        def time(name: str, loops: int) -> float:
            timed.append((name, loops))
            return loops * {"slow": 2.0, "fast": 0.5}[name]

        timers = {name: partial(time, name) for name in ("slow", "fast")}
        timing = Interleaved(timers, least_seconds=4, least_loops=2)
        timed.clear()
        for index in range(2):
            timing.time_round(index)
        assert timed == [("fast", 8), ("slow", 2), ("slow", 2), ("fast", 8)]
        assert timing.seconds == {"slow": [2.0, 2.0], "fast": [0.5, 0.5]}


class TestGoals:
    @pytest.mark.parametrize(("value", "met"), [(45.0, True), (45.01, False), (None, None)])
    def test_a_goal_is_the_most_that_is_allowed(self, value: float | None, met: object) -> None:
        assert Measurement(key="install", value=value).met is met

    def test_a_row_without_a_goal_is_neither_met_nor_missed(self) -> None:
        assert Measurement(key="python-call-default", value=0.1).met is None


class TestReport:
    def test_all_formats_show_values_goals_and_errors(self) -> None:
        report = BenchReport(
            conditions=Conditions(
                started_at="2030-01-01T00:00:00+00:00",
                commit="0123456789abcdef",
                dirty=True,
                machine=describe_machine(),
            ),
            measurements=(
                Measurement(key="install", value=50.26, note="a | b"),
                Measurement(key="cpp-call", error="the compiler failed:\nline 1"),
            ),
        )
        markdown = as_markdown(report)
        assert "| cold `pip install`, whole surface | ≤ 45 CPU-s | 50.3 CPU-s | no |" in markdown
        assert r"a \| b" in markdown
        assert "| ≤ 50 ns | error |  | the compiler failed: |" in markdown
        assert "commit 0123456789ab with changes" in markdown
        content = json.loads(as_json(report))
        assert content["schema_version"] == 1
        assert content["machine"]["cores"] == len(os.sched_getaffinity(0))
        install, call = content["rows"]
        assert (install["value"], install["at_most"], install["met"]) == (50.26, 45, False)
        assert (call["value"], call["error"]) == (None, "the compiler failed:\nline 1")

    @pytest.mark.parametrize("failure", [MeasurementError, ProcessError])
    def test_a_part_that_fails_reports_an_error_for_each_missing_row(
        self,
        failure: type[Exception],
        context: Context,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def fail(_: Context) -> Iterator[Measurement]:
            yield Measurement(key="generate-cold", value=1)
            raise failure("no torch")

        monkeypatch.setitem(cli.MEASURE, "generate", fail)
        cold, unchanged = cli.measure_part("generate", context)
        assert (cold.value, cold.error) == (1, "")
        assert (unchanged.key, unchanged.error) == ("generate-unchanged", "no torch")
        assert cli.report_errors([cold]) == 0
        assert cli.report_errors([cold, unchanged]) == 1
        assert "generate-unchanged: no torch" in capsys.readouterr().err

    def test_an_unknown_part_lists_the_parts(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit, match="2"):
            cli.main(["--only", "wheel,instal"])
        assert "'instal' is not a part; expected some of install, " in capsys.readouterr().err


class TestEnvironment:
    def test_compiler_caches_and_selections_are_left_out(self) -> None:
        variables = {
            "PATH": "/bin",
            "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
            "INFINI_OPS_TORCH_OPS": "abs",
        }
        assert without_compiler_cache(variables) == {"PATH": "/bin", "CCACHE_DISABLE": "1"}

    def test_a_cache_inside_the_compiler_command_is_refused(self) -> None:
        with pytest.raises(MeasurementError, match=r"CXX=ccache g\+\+ puts a compiler cache"):
            without_compiler_cache({"CXX": "ccache g++"})


class TestCommandCost:
    def test_it_is_of_the_whole_process_tree(self, context: Context) -> None:
        grandchild = "b'x' * 200_000_000"
        child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
        usage = context.measure_command([sys.executable, "-c", child])
        assert usage.peak_rss_mb > 200
        assert usage.cpu_s > 0

    def test_a_failure_ends_with_the_last_words_of_the_command(self, context: Context) -> None:
        command = [sys.executable, "-c", "import sys; print('last words'); sys.exit(3)"]
        with pytest.raises(MeasurementError, match=r"ended with 3:\nlast words"):
            context.measure_command(command)


class TestProfile:
    def test_the_launcher_records_the_command_and_passes_its_exit_code_on(
        self, tmp_path: Path
    ) -> None:
        log = tmp_path / "log"
        compiler = [sys.executable, "-c", "raise SystemExit(4)", "-o", "x.dir/a.cc.o"]
        assert launch(str(log), compiler) == 4
        assert launch(str(log), compiler) == 4
        first, _ = (json.loads(line) for line in log.read_text().splitlines())
        assert (first["output"], first["compiles"]) == ("x.dir/a.cc.o", True)
        assert first["cpu_s"] > 0

    def test_the_most_expensive_step_is_first_and_the_rest_is_named(self) -> None:
        records = [
            {"output": "src/CMakeFiles/a.dir/x.cc.o", "cpu_s": 1.0, "peak_rss_mb": 10.0},
            {
                "output": "src/CMakeFiles/a.dir/__/generated/y.cc.o",
                "cpu_s": 2.0,
                "peak_rss_mb": 9.0,
            },
        ]
        usage = CommandCost(user_s=4, system_s=1, wall_s=3, peak_rss_mb=10, peak_process="")
        assert profile_table(records, usage).rows == (
            ("a: y.cc", "2.00", "9"),
            ("a: x.cc", "1.00", "10"),
            ("everything else: pip, CMake, the generator", "2.00", ""),
            ("the whole build", "5.00", "10"),
        )

    def test_only_what_is_imported_after_torch_is_listed(self) -> None:
        report = """\
import time: self [us] | cumulative | imported package
import time:       500 |        500 |   torch.version
import time:      9000 |       9500 | torch
import time:        20 |         20 |     infini.ops._core
import time:        30 |         50 | infini.ops
"""
        assert import_table(report).rows == (
            ("infini.ops", "30", "50"),
            ("infini.ops._core", "20", "20"),
        )


def _timed(case: str, operator: str, isa: str, ours: list[float], threads: int = 1) -> Figures:
    seconds = {"torch": [1.0] * len(ours), "slot 0": ours}
    about = {"case": case, "operator": operator, "isa": isa, "threads": threads, "flops": 0}
    return about | {"seconds": seconds}


class TestKernels:
    @pytest.mark.parametrize(
        ("processor", "isas"),
        [
            ("AVX-512 VNNI", ("baseline", "avx2", "avx512")),
            ("AVX2", ("baseline", "avx2")),
            ("SSE4.2", ("baseline",)),
            (None, ("baseline",)),
        ],
    )
    def test_only_instruction_sets_of_the_processor_are_measured(
        self, processor: str | None, isas: tuple[str, ...]
    ) -> None:
        assert usable_isas(processor) == isas

    def test_torch_and_its_libraries_are_limited_as_the_library_is(self) -> None:
        limits = limits_to("avx2")
        assert limits.keys() == LIMITS.keys()
        assert {value.lower() for value in limits.values()} == {"avx2"}

    def test_an_operator_has_a_row_per_instruction_set_with_its_worst_case(self) -> None:
        cases = [
            _timed("add float32, 1 k", "add", "avx2", [0.5, 0.6, 0.7]),
            _timed("add float32, 64 k", "add", "avx2", [1.0, 1.2, 1.4], threads=2),
            _timed("add float32, 1 M", "add", "avx2", [0.9, 0.9, 0.9]),
            _timed("add float32, 1 k", "add", "baseline", [2.0]),
        ]
        assert list(summary_rows(cases)) == [
            ("add", "avx2", "0.90", "1.20", "1.01 to 1.39", "add float32, 64 k, 2 threads"),
            ("add", "baseline", "2.00", "2.00", "2.00 to 2.00", "add float32, 1 k, 1 thread"),
        ]

    def test_what_seems_slow_is_measured_in_another_process(self) -> None:
        failed = {"case": "cat", "error": "off by 1"}
        first = [("add", 1.0), ("mul", 1.2), ("swiglu", 1.3)]
        second = [("mul", 0.8), ("swiglu", 1.4)]

        def measure(cases: Sequence[str] = ()) -> Timings:
            assert list(cases) in ([], ["mul", "swiglu"])
            timed = [
                _timed(name, name, "avx2", [ratio]) for name, ratio in (second if cases else first)
            ]
            return Timings(device="the CPU", cases=[*timed, failed])

        better = {"add": 1.0, "mul": 0.8, "swiglu": 1.3, "cat": 0}
        assert {case["case"]: slowness(case) for case in confirmed(measure)} == better

    def test_the_slowest_case_is_the_value_and_a_failed_one_an_error(self) -> None:
        wrong = {"case": "mul float16, 1 k", "isa": "avx2", "threads": 2, "error": "off by 1"}
        fast = _timed("add float32, 1 k", "add", "avx2", [0.5])
        slow = _timed("add float32, 64 k", "add", "avx2", [1.5])
        timings = Timings(device="the CPU", cases=[wrong, fast, slow])
        row = timings.slowest("kernels-cpu-memory", timings.memory_bound)
        assert (row.value, row.met) == (1.5, False)
        assert row.note == ("the slowest of 2: add float32, 64 k, avx2, 1 thread, slot 0; the CPU")
        assert row.error == "1 cases failed:\nmul float16, 1 k, avx2, 2 threads: off by 1"

    def test_the_slots_times_are_what_the_order_of_slots_is_made_from(self) -> None:
        both = {"torch": [1e-6], "slot 0": [1e-6, 4e-6, 3e-6], "slot 9": [2e-6, 2e-6, 1e-6]}
        cases = [
            {"case": "add", "operator": "add", "seconds": both},
            {"case": "mul", "operator": "mul", "seconds": {"torch": [1e-6], "slot 0": [1e-6]}},
        ]
        conditions = Conditions(
            started_at="2026-11-27T01:02:03+00:00",
            commit="0123456789abcdef",
            dirty=False,
            machine=describe_machine(),
        )
        text = slot_times_text(Timings(device="a GPU", cases=cases), conditions)
        times = json.loads(text)
        assert times.pop("cases") == [
            {"operator": "add", "case": "add", "microseconds": {"0": 3.0, "9": 2.0}}
        ]
        assert times == {
            "platform": "nvidia",
            "device": "a GPU",
            "date": "2026-11-27",
            "commit": "01234567",
        }
        assert [order.slots for order in measured_orders(json.loads(text))] == [(9, 0)]

    def test_without_any_timed_case_the_failures_are_the_error(self) -> None:
        timings = Timings(device="the CPU", cases=[{"case": "mul", "error": "off by 1"}])
        with pytest.raises(MeasurementError, match=r"could be timed\nmul: off by 1"):
            timings.slowest("kernels-cpu-memory", timings.memory_bound)
