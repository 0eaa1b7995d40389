"""Causes of a changed cost, on invented sides; and causes that are never claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ci.analysis.cause import explain
from ci.analysis.explanation import Contributor, Explanation
from ci.analysis.parts import BuildSide, CauseKind, source_name
from ci.model.details import BuildDetails, Unit, UnitKind
from ci.model.results import BuildResult, StageResult
from ci.model.verdicts import Grade
from tests.ci.published import PUBLISHED, platform_result

CPU = {f"cpu/op{number}.cc": 6.0 for number in range(60)}  # 360 s of work
FOUR = {f"triton/{name}.c": 15.5 for name in ("add", "cast", "driver", "mul")}
ENVIRONMENT = {"compiler": "g++ 12.2", "cmake": "cmake 4.3", "torch": "2.13"}


def details(
    seconds: Mapping[str, float], *, cached: Sequence[str] | None = None, **other: Any
) -> BuildDetails:
    """A build of sources below ``src``; ``cached``: those that the compiler cache had."""
    units = tuple(
        Unit(
            output=f"src/CMakeFiles/ops.dir/{name}.o",
            kind=UnitKind.COMPILE,
            seconds=value,
            cached=None if cached is None else name in cached,
        )
        for name, value in seconds.items()
    )
    return BuildDetails(units=units, **other)


def side(
    *builds: BuildDetails,
    wall: float | None = None,
    stages: Mapping[str, float] | None = None,
    tests: Mapping[str, float] | None = None,
    environment: Mapping[str, object] = ENVIRONMENT,
    **build: Any,
) -> BuildSide:
    """Two units ran at a time, unless ``wall`` says otherwise."""
    units = builds[0].units if builds else ()
    wall = sum(unit.seconds for unit in units) / 2 if wall is None else wall
    seconds = {"install": wall + 10, "pytest": 100.0, **(stages or {})}
    result = platform_result(
        "CPU",
        PUBLISHED[0][1:],
        stages=tuple(
            StageResult(name=name, seconds=value, exit_code=0, in_total=True)
            for name, value in seconds.items()
        ),
        build=BuildResult(compile_s=wall, translation_units=len(units), **build),
        pytest_s=seconds["pytest"],
        total_s=sum(seconds.values()),
        environment=dict(environment),
    )
    return BuildSide(result=result, builds=builds, tests=tests or {})


def compile_time(before: BuildSide, after: BuildSide) -> Explanation:
    return explain("compile.wall_s", before, after)


def only(found: Explanation, kind: CauseKind) -> Contributor:
    [contributor] = [each for each in found.contributors if each.kind is kind]
    return contributor


BEFORE = side(details(CPU))


def with_cache(rate: float) -> dict[str, object]:
    return {**ENVIRONMENT, "compiler_cache": {"state": "warm", "hit_rate": rate}}


def test_the_message_that_all_this_is_for() -> None:
    before = side(details(CPU), environment=with_cache(0.97))
    slower = {**CPU, "cpu/op0.cc": 20.0}
    after = side(details({**slower, **FOUR}), environment=with_cache(0.6))
    assert compile_time(before, after).text == (
        "compile +38 s (+21 %), 31 s of it in 4 new units of the triton backend (add.c, cast.c, "
        "driver.c and 1 more), 7.0 s in src/cpu/op0.cc (6.0 s -> 20 s, 2.0 at a time); "
        "cache hits fell from 97 % to 60 %"
    )


def test_what_is_gone_is_named() -> None:
    assert compile_time(side(details({**CPU, **FOUR})), BEFORE).text == (
        "compile -31 s (-15 %), 31 s of it in 4 removed units of the triton backend "
        "(add.c, cast.c, driver.c and 1 more)"
    )


def test_signs_where_some_go_the_other_way() -> None:
    before = side(details({**CPU, "torch/old.cc": 20.0}))
    after = side(details({**CPU, **FOUR}))
    assert compile_time(before, after).text == (
        "compile +21 s (+11 %), +31 s in 4 new units of the triton backend (add.c, cast.c, "
        "driver.c and 1 more), -10 s in 1 removed unit, src/torch/old.cc"
    )


def test_never_more_than_the_whole_change() -> None:
    """The others took a little less, which is not worth a word."""
    faster = {name: seconds * 0.99 for name, seconds in CPU.items()}
    found = compile_time(BEFORE, side(details({**faster, **FOUR})))
    assert found.text.startswith("compile +29 s (+16 %), 29 s of it in 4 new units")
    assert found.contributors[0].share == pytest.approx(31.0)


def test_a_long_list_is_cut_with_its_count() -> None:
    backends = ("ascend", "cambricon", "cuda", "metax", "moore", "torch", "triton")
    before = side(details({**CPU, "x/old.cc": 6.0, "y/old.cc": 6.0}))
    after = side(details({**CPU, **{f"{name}/new.cc": 6.0 for name in backends}}))
    found = compile_time(before, after)
    assert found.causes.startswith("+9.0 s in 3 new units elsewhere (src/moore/new.cc, src/torch/")
    assert found.causes.endswith(" s in 1 new unit, src/metax/new.cc, and 2 more")


def test_several_units_that_grew_are_reported_by_their_common_folder() -> None:
    names = [f"kernels/{place}/{name}.cu" for place in "abcd" for name in ("one", "two")]
    small = {f"main/{number}.cc": 1.0 for number in range(9)}
    before = side(details({**small, **dict.fromkeys(names, 4.0)}))
    after = side(details({**small, **dict.fromkeys(names, 8.0)}))
    assert only(compile_time(before, after), CauseKind.GREW).text == (
        "in 8 units in src/kernels (src/kernels/a/one.cu, src/kernels/a/two.cu, "
        "src/kernels/b/one.cu and 5 more) that grew"
    )


def test_a_unit_with_a_large_share_is_reported_separately() -> None:
    grown = {**CPU, "cpu/op9.cc": 36.0, "cpu/op1.cc": 10.0, "cpu/op2.cc": 12.0}
    assert compile_time(BEFORE, side(details(grown))).causes == (
        "15 s of it in src/cpu/op9.cc (6.0 s -> 36 s, 2.0 at a time), "
        "5.0 s in 2 units of the cpu backend (op2.cc, op1.cc) that grew"
    )


@pytest.mark.parametrize(
    ("ratio", "change", "difference"),
    [
        (1.2, "+36 s (+20 %), 36 s", "20 % longer"),
        (0.8, "-36 s (-20 %), 36 s", "20 % shorter"),
        (3.0, "+360 s (+200 %), 360 s", "3.0 times as long"),
    ],
)
def test_units_that_are_all_alike_are_no_units_fault(
    ratio: float, change: str, difference: str
) -> None:
    after = side(details({name: seconds * ratio for name, seconds in CPU.items()}))
    assert compile_time(BEFORE, after).text == (
        f"compile {change} of it in all 60 units alike, each about {difference}: "
        "because of the machine, or of something they all share"
    )


def test_what_changed_with_them_is_likely_and_no_more() -> None:
    older = {**ENVIRONMENT, "packages": {"numpy": "2.3"}}
    newer = {**ENVIRONMENT, "compiler": "g++ 13.1", "packages": {"numpy": "2.4"}}
    slower = {name: seconds * 1.2 for name, seconds in CPU.items()}
    before = side(details(CPU, flags=("-O2", "-g")), environment=older)
    after = side(details(slower, flags=("-O3", "-g")), environment=newer)
    found = compile_time(before, after)
    assert found.causes == (
        "36 s of it in all 60 units alike, each about 20 % longer; at the same time: compiler "
        "flags changed: added -O3, removed -O2; packages changed: numpy 2.3 -> 2.4; "
        "compiler changed: g++ 12.2 -> g++ 13.1"
    )
    likely = [each.kind for each in found.contributors if each.grade is Grade.LIKELY]
    assert likely == [CauseKind.FLAGS, CauseKind.PACKAGES, CauseKind.ENVIRONMENT]


def test_hits_that_were_lost_cost_what_is_compiled_again() -> None:
    names = [*CPU]
    hits = dict.fromkeys(names[:20], 0.1)
    before = side(details({**CPU, **hits}, cached=names[:20]))
    found = compile_time(before, side(details(CPU, cached=())))
    assert found.text == (
        "compile +59 s (+49 %), 59 s of it in 20 units that came from the compiler cache before; "
        "cache hits fell from 33 % to 0 %"
    )
    assert compile_time(side(details(CPU, cached=())), before).causes.startswith(
        "59 s of it in 20 units that now come from the compiler cache; cache hits rose"
    )


def test_the_same_work_with_less_of_it_at_a_time() -> None:
    found = compile_time(BEFORE, side(details(CPU), wall=240.0))
    assert found.causes == "60 s of it because fewer ran at a time (2.00 -> 1.50)"


def test_a_single_slow_one_is_not_taken_for_all() -> None:
    small = {f"a/{number}.cc": 0.5 for number in range(9)}
    before = side(details({**small, "a/large.cc": 40.0}))
    after = side(details({**small, "a/large.cc": 80.0}))
    expected = "20 s of it in src/a/large.cc (40 s -> 80 s, 2.0 at a time)"
    assert compile_time(before, after).causes == expected


def test_noise_is_spread_over_many_and_names_none() -> None:
    noise = [1.0, 1.09, 0.95, 1.12, 1.03]
    noisy = {name: value * noise[n % 5] for n, (name, value) in enumerate(CPU.items())}
    assert compile_time(BEFORE, side(details(noisy))).causes == "6.8 s of it spread over 60 units"


def test_on_a_busy_machine_much_is_noise() -> None:
    """As measured: half of the units moved by more than a fifth."""
    noise = [0.67, 0.8, 1.25, 1.5, 1.6, 0.9, 1.1]
    noisy = {name: value * noise[n % 7] for n, (name, value) in enumerate(CPU.items())}
    found = compile_time(BEFORE, side(details({**noisy, "cpu/op0.cc": 60.0})))
    assert only(found, CauseKind.GREW).names == ("src/cpu/op0.cc",)
    assert CauseKind.SHRANK not in {each.kind for each in found.contributors}


def test_medians_of_several_runs_leave_a_spike_out() -> None:
    spike = details({**CPU, "cpu/op3.cc": 60.0})
    steady = [details({**CPU, "cpu/op5.cc": 30.0})] * 2
    found = compile_time(BEFORE, side(*steady, spike))
    assert only(found, CauseKind.GREW).names == ("src/cpu/op5.cc",)


def test_a_target_that_was_renamed_is_no_change() -> None:
    renamed = tuple(
        Unit(output=unit.output.replace("ops.dir", "infini.dir"), kind=unit.kind, seconds=7.5)
        for unit in BEFORE.builds[0].units
    )
    found = compile_time(BEFORE, side(BuildDetails(units=renamed)))
    assert [each.kind for each in found.contributors] == [CauseKind.UNIFORM]


@pytest.mark.parametrize(
    ("after", "who"),
    [(BEFORE, "the run before has no"), (side(wall=200.0), "neither run has a")],
)
def test_without_a_build_log_the_remedy_is_named(after: BuildSide, who: str) -> None:
    assert compile_time(side(wall=100.0), after).causes == (
        f"unexplained: {who} Ninja log "
        "(set `ninja_log: build/.ninja_log` in `artifacts` of ci.yaml)"
    )


def test_a_stage_explains_the_seconds_that_it_brings_or_takes() -> None:
    """It has no seconds on one side, so that no log of it could explain them."""
    added = side(details(CPU), stages={"package": 148.0})
    found = explain("total.wall_s", BEFORE, added)
    assert found.text == "total +148 s (+51 %), 148 s of it in the new package stage"
    found = explain("total.wall_s", added, BEFORE)
    assert found.causes == "148 s of it in the removed package stage"


def test_a_renamed_stage_explains_only_what_it_costs_more() -> None:
    before, after = (side(details(CPU), stages={name: s}) for name, s in (("a", 300), ("b", 420)))
    assert explain("total.wall_s", before, after).causes == (
        "120 s of it in the b stage, which has the place of a"
    )


def test_a_total_is_explained_by_stages_and_by_units() -> None:
    after = side(details({**CPU, **FOUR}), stages={"pytest": 112.0})
    found = explain("total.wall_s", BEFORE, after)
    assert found.causes.startswith("31 s of it in 4 new units of the triton backend (")
    assert found.causes.endswith("), 12 s in the pytest stage")


def test_generated_lines_are_reported_by_files() -> None:
    generated = {"generated/torch/table.cc": 1000, "generated/torch/add.cc": 200}
    more = {**generated, "generated/triton/add.c": 900, "generated/torch/add.cc": 300}
    before = side(details(CPU, generated=generated), generated_lines=1200)
    after = side(details(CPU, generated=more), generated_lines=2200, wall=200.0)
    assert explain("generate.lines", before, after).text == (
        "generate +1,000 lines (+83 %), 900 lines of it in 1 new file, generated/triton/add.c, "
        "100 lines in generated/torch/add.cc (200 lines -> 300 lines)"
    )
    assert compile_time(before, after).causes.endswith(
        "; at the same time: +1,000 generated lines, +900 in 1 file, generated/triton/add.c"
    )


def test_units_are_counted_in_words() -> None:
    assert explain("compile.units", BEFORE, side(details({**CPU, **FOUR}))).text == (
        "compile +4 units (+6.7 %), 4 new units of the triton backend "
        "(add.c, cast.c, driver.c and 1 more)"
    )


def test_of_a_wheel_only_the_units_are_known() -> None:
    before = side(details(CPU), wheel_bytes=10 << 20)
    after = side(details({**CPU, **FOUR}), wheel_bytes=12 << 20)
    found = explain("install.wheel_bytes", before, after)
    assert found.text == (
        "wheel +2.0 MiB (+20 %); at the same time: 4 new units of the triton backend "
        "(add.c, cast.c, driver.c and 1 more)"
    )
    assert [each.share for each in found.contributors] == [None]


def test_time_traces_name_what_the_units_spent_more_on() -> None:
    before = side(details(CPU, traced={"source Eigen/Core": 20.0, "source vector": 4.0}))
    slower = {**CPU, "cpu/op0.cc": 20.0}
    new = f"template Matrix<{'Matrix<' * 30}"
    after = side(details(slower, traced={"source Eigen/Core": 25.0, new: 12.0, "source map": 4.1}))
    assert compile_time(before, after).causes.endswith(
        "; the compiler's time traces grew in template Matrix<Matrix<Matrix<Matrix<Matrix<Matrix<"
        "Matrix<Matrix<Matrix<Matrix<M... (+8.0 s), source Eigen/Core (+5.0 s)"
    )


def seconds_of(seconds: float, *operators: str) -> dict[str, float]:
    return {
        f"tests/test_ops.py::test_out[{name}.out-float32-cpu-slot{number}]": seconds
        for name in operators
        for number in range(10)
    }


def test_tests_are_reported_by_operators() -> None:
    same = seconds_of(1.0, "add", "mul", "cat", "relu") | {"tests/test_cli.py::test_help": 1.0}
    before = side(details(CPU), tests=same | seconds_of(1.0, "sort"), stages={"pytest": 51.0})
    slower = same | seconds_of(3.0, "sort") | seconds_of(1.5, "fft")
    after = side(details(CPU), tests=slower, stages={"pytest": 86.0})
    assert explain("pytest.wall_s", before, after).text == (
        "pytest +35 s (+69 %), 20 s of it in tests of sort (10 s -> 30 s), 15 s in 10 new tests of "
        "fft (test_ops.py::test_out[fft.out-float32-cpu-slot0], "
        "test_ops.py::test_out[fft.out-float32-cpu-slot1], "
        "test_ops.py::test_out[fft.out-float32-cpu-slot2] and 7 more)"
    )


def test_unchanged_and_unmeasured_values_are_not_reported() -> None:
    assert compile_time(BEFORE, BEFORE).text == "compile +0.0 s (+0 %)"
    unmeasured = "link.wall_s was not measured on both sides"
    assert explain("link.wall_s", BEFORE, BEFORE).text == unmeasured


SECONDS = st.floats(0.01, 100.0)
UNITS = st.dictionaries(
    st.sampled_from([f"{place}/{number}.cc" for place in ("cpu", "x/y") for number in range(6)]),
    SECONDS,
    min_size=1,
)


@given(UNITS, UNITS, SECONDS, SECONDS)
@example({"cpu/0.cc": 1.0}, {"cpu/0.cc": 1.0}, 1.0, 90.0)  # the build takes as long as the tests
def test_the_shares_are_the_change_whatever_the_units_took(
    before: dict[str, float], after: dict[str, float], first: float, second: float
) -> None:
    sides = side(details(before), wall=first), side(details(after), wall=second)
    for measure in ("compile.wall_s", "install.wall_s", "total.wall_s", "compile.units"):
        found = explain(measure, *sides)
        shares = sum(each.share or 0.0 for each in found.contributors)
        assert shares == pytest.approx(found.change, abs=1e-6)


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("src/CMakeFiles/ops.dir/cpu/add.cc.o", "src/cpu/add.cc"),
        ("src/CMakeFiles/ops.dir/__/generated/torch/kernels.cc.o", "generated/torch/kernels.cc"),
        ("CMakeFiles/ops.dir/src/add.cu.o", "src/add.cu"),
        ("libops.so.p/src_add.cc.o", "src_add.cc"),
        ("build/temp.linux-x86_64-cpython-311/src/add.o", "src/add"),
        ("src/libops.so", "src/libops.so"),
    ],
)
def test_the_source_of_an_output(output: str, name: str) -> None:
    assert source_name(output) == name
