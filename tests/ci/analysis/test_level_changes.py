"""Findings of a history: regressions by environment, reported once, accepted, undone."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ci.analysis.histories import history
from ci.analysis.level_changes import History, Shift, accepted_levels
from ci.facts.acceptance import Acceptance
from ci.facts.environment_key import EnvironmentKey
from ci.gates.regression import Judgement
from ci.store.rows import RunMeasures
from ci.util.text import commit_name
from tests.ci.stored_history import acceptance

KEY = EnvironmentKey(
    platform="cpu",
    machine="a CPU, 2 cores, 4 GiB",
    image="none",
    compiler="g++ 12.2",
    build_tools="cmake 4.3.0, ninja 1.13.2",
    python="Python 3.11.2",
    torch="torch 2.13.0",
    engine="host engine",
    cache="cold compiler cache",
    selection="all operators",
)
NEWER = replace(KEY, compiler="g++ 13.1")
WARM = replace(KEY, cache="warm compiler cache, half or more hits")
KEYS = {key.digest: key for key in (KEY, NEWER, WARM)}
START = datetime(2026, 1, 1, tzinfo=UTC)


def runs(
    values: Mapping[str, Sequence[float | None]], key: EnvironmentKey = KEY, at: int = 0
) -> list[RunMeasures]:
    """One run for each value of the series, a commit each."""
    count = max(map(len, values.values()))
    return [
        RunMeasures(
            run_id=f"run-{at + n}",
            commit=f"{at + n:040x}",
            dirty=False,
            started_at=START + timedelta(hours=at + n),
            key=key.digest,
            values={
                name: value for name, series in values.items() if (value := series[n]) is not None
            },
        )
        for n in range(count)
    ]


def noisy(*levels: tuple[float, int], seed: int = 1) -> list[float]:
    """Levels, each for so many runs, in noise of 1 %."""
    noise = random.Random(seed)  # noqa: S311
    return [level * noise.gauss(1, 0.01) for level, count in levels for _ in range(count)]


def step(
    before: float = 100.0, after: float = 130.0, *, at: int = 20, since: int = 12, seed: int = 1
) -> list[float]:
    return noisy((before, at), (after, since), seed=seed)


def regressions(values: Mapping[str, Sequence[float | None]], *accepted: Acceptance) -> list[Shift]:
    return history(runs(values), KEYS, accepted).of(Judgement.REGRESSION)


def only(found: History) -> Shift:
    [environment] = found.environments
    [shift] = environment.shifts
    return shift


def test_a_step_is_reported_between_the_runs_around_it() -> None:
    found = history(runs({"install.wall_s": step()}), KEYS)
    shift = only(found)
    assert found.of(Judgement.REGRESSION) == [shift]
    change = shift.headline
    assert (change.before_run.run_id, change.run.run_id) == ("run-19", "run-20")
    assert change.point.before == pytest.approx(100, rel=0.02)
    assert change.point.after == pytest.approx(130, rel=0.02)
    assert change.runs_since == 12


CPU_OF_INSTALL = [3.3, 3.2, 3.3, 3.3, 3.3, 3.1, 3.3, 3.1, 15.5, 15.4, 16.0, 18.3, 17.5, 17.4, 17.1]


@pytest.mark.parametrize(
    ("compile_s", "first"),
    [
        # The last run before the units came took as long as the first with them.
        ([4.6, 4.8, 3.6, 4.1, 3.8, 3.3, 5.0, 4.9, 17, 15, 22, 42, 31, 44, 42], "run-8"),
        # A real series: the machine got busier two runs after two units came.
        ([4.6, 4.8, 3.6, 4.1, 3.8, 3.3, 5.0, 3.4, 17, 15, 22, 42, 31, 44, 42], "run-8"),
        # What came two runs after the units is another cause's.
        ([4.6, 4.8, 3.6, 4.1, 3.8, 3.3, 5.0, 3.4, 4.5, 3.9, 42, 41, 40, 44, 42], "run-10"),
    ],
)
def test_noise_of_wall_time_moves_no_change_to_another_commit(
    compile_s: list[float], first: str
) -> None:
    values = {
        "compile.wall_s": compile_s,
        "install.cpu_s": CPU_OF_INSTALL,
        "compile.units": [5.0] * 8 + [7.0] * 7,
    }
    shift = only(history(runs(values), KEYS))
    assert shift.headline.measure == "compile.wall_s"
    assert shift.headline.run.run_id == first
    assert {change.run.run_id for change in shift.others} == {"run-8"}


def test_a_part_leads_only_where_it_explains_what_contains_it() -> None:
    values = {
        "link.wall_s": noisy((0.1, 20), (0.5, 12)),
        "install.wall_s": noisy((49, 32), seed=2),
        "install.cpu_s": step(16, 24, seed=3),
    }
    shift = only(history(runs(values), KEYS))
    assert [it.measure for it in shift.changes] == ["install.cpu_s", "link.wall_s"]


def test_a_quiet_history_has_nothing_open_and_says_what_it_could_have_seen() -> None:
    found = history(runs({"install.wall_s": noisy((100, 40))}), KEYS)
    [environment] = found.environments
    [series] = environment.series
    assert not found.of(Judgement.REGRESSION)
    assert series.finding.detectable is not None
    assert series.runs == 40


def test_a_run_without_any_measure_is_no_environment() -> None:
    lost = runs({"install.wall_s": [None]}, replace(KEY, compiler="unknown"), at=12)
    found = history([*runs({"install.wall_s": noisy((100, 12))}), *lost], KEYS)
    assert [environment.key for environment in found.environments] == [KEY]
    assert not found.key_changes


def test_no_runs_are_no_error() -> None:
    assert history([], KEYS) == History(environments=(), past=(), key_changes=())


def test_an_improvement_is_no_regression() -> None:
    shift = only(history(runs({"install.wall_s": step(130, 100)}), KEYS))
    assert shift.judgement is Judgement.IMPROVEMENT


def test_runs_that_failed_are_gaps() -> None:
    values: list[float | None] = [*step()]
    values[18:22] = [None] * 4  # the change is somewhere between
    change = only(history(runs({"install.wall_s": values}), KEYS)).headline
    assert (change.before_run.run_id, change.run.run_id) == ("run-17", "run-22")


def test_measures_of_one_cause_are_reported_once_the_specific_stage_first() -> None:
    together = {
        "install.wall_s": step(200, 240, seed=1),
        "total.wall_s": step(300, 340, seed=2),
        "install.cpu_s": step(380, 450, seed=3),
        "compile.wall_s": step(180, 219, seed=4),
        "pytest.wall_s": noisy((100, 32), seed=5),
    }
    [shift] = regressions(together)
    names = [change.measure for change in shift.changes]
    assert names == ["compile.wall_s", "install.wall_s", "install.cpu_s", "total.wall_s"]


def test_changes_far_from_each_other_are_reported_separately() -> None:
    values = {
        "install.wall_s": step(at=15, since=30, seed=1),
        "pytest.wall_s": step(at=30, since=15, seed=2),
    }
    newest, oldest = regressions(values)
    assert [newest.headline.measure, oldest.headline.measure] == ["pytest.wall_s", "install.wall_s"]


def test_a_single_stage_is_reported_with_its_own_measures() -> None:
    values = {"install.wall_s": step(seed=1), "pytest.wall_s": step(seed=2)}
    found = history(runs(values), KEYS, stage="pytest")
    assert [change.measure for change in only(found).changes] == ["pytest.wall_s"]
    assert [series.measure for series in found.environments[0].series] == ["pytest.wall_s"]


def test_a_rise_that_was_taken_back_does_not_alarm() -> None:
    found = history(runs({"install.wall_s": noisy((100, 20), (130, 15), (100, 15))}), KEYS)
    fall, rise = found.environments[0].shifts
    assert not found.of(Judgement.REGRESSION)
    assert rise.headline.undone == fall.headline.run


def test_a_rise_that_was_taken_back_in_part_alarms() -> None:
    [shift] = regressions({"install.wall_s": noisy((100, 20), (150, 15), (125, 15))})
    assert shift.headline.undone is None


def of_commits(rows: Sequence[RunMeasures], *counts: int) -> list[RunMeasures]:
    """The runs as those of few commits, each with so many of them."""
    commits = [f"{at:040x}" for at, count in enumerate(counts) for _ in range(count)]
    return [row._replace(commit=it) for row, it in zip(rows, commits, strict=True)]


@pytest.mark.parametrize("counts", [(40,), (*[1] * 19, 21), (*[1] * 10, 30)])
def test_a_rise_between_runs_of_one_commit_is_of_the_environment(counts: tuple[int, ...]) -> None:
    rows = runs({"install.wall_s": noisy((100, 20), (120, 20))})
    found = history(of_commits(rows, *counts), KEYS)
    assert found.shifts == []
    [change] = found.environment_rises
    assert change.run.run_id == "run-20"
    same = f"sources unchanged: both runs are of {commit_name(change.run.commit)}"
    assert change.changes == (same,)
    assert (change.is_open, change.rises[0].judgement) == (True, Judgement.ENVIRONMENT)


@pytest.mark.parametrize("seed", range(20))
def test_noise_makes_no_rise_of_a_commit_one_of_the_environment(seed: int) -> None:
    """It shifts the found place from the first run of a commit to another one."""
    rows = runs({"install.wall_s": noisy((100, 21), (103, 21), seed=seed)})
    found = history(of_commits(rows, *[3] * 14), KEYS)
    assert found.environment_rises == ()
    if found.shifts:
        assert not found.shifts[0][1].headline.is_in_one_commit


def test_a_change_of_units_without_noise_is_seen_in_one_commit() -> None:
    """A setting that no key has: the counts of equal sources are equal."""
    found = history(of_commits(runs({"compile.units": [100.0] * 8 + [120.0] * 8}), 7, 9), KEYS)
    assert (found.shifts, len(found.environment_rises)) == ([], 1)


def test_slow_runs_of_one_commit_are_suspected_of_the_environment() -> None:
    rows = runs({"install.wall_s": noisy((100, 20), (120, 3))})
    found = history(of_commits(rows, *[1] * 18, 5), KEYS)
    [change] = found.environment_rises
    assert (change.is_open, change.rises[0].judgement) == (False, Judgement.SUSPECTED)


def upgraded(*levels: tuple[float, int], accepted: Sequence[Acceptance] = ()) -> History:
    """Ten runs, then those at the levels with a newer compiler."""
    values = noisy((100, 10), *levels)
    old = runs({"install.wall_s": values[:10]})
    return history([*old, *runs({"install.wall_s": values[10:]}, NEWER, at=10)], KEYS, accepted)


@pytest.mark.parametrize("count", [2, 4])
def test_a_new_compiler_hides_no_rise_that_came_later(count: int) -> None:
    """Its first runs are too few for a series of their own, but as fast as those before it."""
    found = upgraded((100, count), (108, 8))
    assert found.environment_rises == ()
    [(environment, shift)] = found.shifts
    change = shift.headline
    assert (environment.key, shift.judgement) == (NEWER, Judgement.REGRESSION)
    assert (change.before_run.run_id, change.run.run_id) == (
        f"run-{9 + count}",
        f"run-{10 + count}",
    )
    [*accepted] = accepted_levels(environment, shift)
    assert [run.run_id for _, run, _ in accepted] == [f"run-{10 + count}"] * len(accepted)
    terms = acceptance("install.wall_s", 108, run=f"run-{10 + count}")
    found = upgraded((100, count), (108, 8), accepted=[terms])
    assert [it.judgement for _, it in found.shifts] == [Judgement.ACCEPTED]


def test_a_later_rise_in_one_commit_is_of_the_environment() -> None:
    values = noisy((100, 13), (120, 8))
    rows = runs({"install.wall_s": values[:10]})
    rows += runs({"install.wall_s": values[10:]}, NEWER, at=10)
    found = history(of_commits(rows, 10, 11), KEYS)
    assert (found.shifts, len(found.environment_rises)) == ([], 1)


def test_a_later_rise_that_was_taken_back_does_not_alarm() -> None:
    found = upgraded((100, 3), (120, 8), (100, 8))
    assert found.of(Judgement.REGRESSION) == []


def test_one_fast_run_of_a_new_compiler_proves_nothing() -> None:
    found = upgraded((100, 1), (108, 9))
    assert (found.shifts, len(found.environment_rises)) == ([], 1)


def test_environments_are_never_compared() -> None:
    rows = [*runs({"install.wall_s": noisy((100, 30))})]
    rows += runs({"install.wall_s": noisy((150, 12))}, NEWER, at=30)
    found = history(rows, KEYS)
    assert not any(environment.shifts for environment in found.environments)
    assert [environment.key for environment in found.environments] == [NEWER, KEY]
    [change] = found.key_changes
    assert change.run.run_id == "run-30"
    assert change.changes == ("compiler changed: g++ 12.2 -> g++ 13.1",)


def test_a_new_environment_is_compared_once_with_the_most_similar_one() -> None:
    both = replace(NEWER, cache=WARM.cache)
    rows = []
    for at, key in enumerate((KEY, WARM, KEY, WARM, both, KEY, both)):
        rows += runs({"install.wall_s": [100.0]}, key, at)
    found = history(rows, {**KEYS, both.digest: both})
    last, first = found.key_changes
    assert first.changes == (f"cache changed: {KEY.cache} -> {WARM.cache}",)
    assert last.changes == ("compiler changed: g++ 12.2 -> g++ 13.1",)


def test_environments_that_alternate_have_a_series_each() -> None:
    cold, warm = noisy((100, 40)), step(10, 13, at=28, since=12)
    rows = []
    for n, (slow, fast) in enumerate(zip(cold, warm, strict=True)):
        rows += runs({"install.wall_s": [slow]}, KEY, 2 * n)
        rows += runs({"install.wall_s": [fast]}, WARM, 2 * n + 1)
    found = history(rows, KEYS)
    warm_runs, cold_runs = found.environments
    regressions = [it for it, shift in found.shifts if shift.judgement is Judgement.REGRESSION]
    assert regressions == [warm_runs]
    assert not cold_runs.shifts


def test_an_environment_of_the_past_does_not_alarm() -> None:
    rows = runs({"install.wall_s": step()})
    rows += runs({"install.wall_s": noisy((130, 25))}, NEWER, at=32)
    found = history(rows, KEYS)
    assert not found.of(Judgement.REGRESSION)
    assert [(it.key, len(it.runs)) for it in found.past] == [(KEY, 32)]


@pytest.mark.parametrize(
    ("accepted", "alarms"),
    [
        (acceptance("install.wall_s", 128, run="run-18"), False),  # the place was seen to move
        (acceptance("install.wall_s", 128, run="run-23"), False),
        (acceptance("install.wall_s", 130, run="no-more", commit=f"{20:040x}"), False),
        (acceptance("pytest.wall_s", 130, run="run-20"), True),
        (acceptance("install.wall_s", 130, run="run-5"), True),
        (acceptance("install.wall_s", 130, run="no-more"), True),
        (acceptance("install.wall_s", 115, run="run-20"), True),  # of a smaller rise
    ],
    ids=["earlier", "later", "commit", "measure", "run", "lost run", "level"],
)
def test_an_acceptance_covers_its_own_rise_only(accepted: Acceptance, *, alarms: bool) -> None:
    assert bool(regressions({"install.wall_s": step()}, accepted)) is alarms


def test_changes_that_are_not_accepted_come_first() -> None:
    values = {"install.wall_s": step(seed=1), "pytest.wall_s": step(seed=2)}
    for accepted, open_rise in (tuple(values), tuple(values)[::-1]):
        [shift] = regressions(values, acceptance(accepted, 130, run="run-20"))
        assert shift.headline.measure == open_rise


def test_what_rises_above_the_accepted_level_alarms_again() -> None:
    values = noisy((100, 20), (130, 12), (160, 12))
    [shift] = regressions(
        {"install.wall_s": values}, acceptance("install.wall_s", 130, run="run-20")
    )
    assert shift.headline.run.run_id == "run-32"


def test_the_stages_that_contain_what_is_accepted_are_accepted_with_it() -> None:
    values = {
        "compile.wall_s": step(50, 65, seed=1),
        "install.wall_s": step(200, 215, seed=2),
        "total.wall_s": noisy((1000, 20), (1015, 12), seed=3),  # too little to be seen
        "pytest.wall_s": noisy((800, 32), seed=4),
    }
    found = history(runs(values), KEYS)
    accepted = accepted_levels(found.environments[0], only(found))
    levels = {name: level for name, _, level in accepted}
    assert set(levels) == {"compile.wall_s", "install.wall_s", "total.wall_s"}
    assert levels["total.wall_s"] == pytest.approx(1015, rel=0.02)


def test_a_higher_level_undoes_no_rise_however_little_is_detectable() -> None:
    """The newest run alone is at a new level: only large changes of that are detectable."""
    noise, levels = random.Random(7), ((113, 30), (128, 44), (136, 40), (201, 8), (136, 1))  # noqa: S311
    values = [level * noise.gauss(1, 0.02) for level, count in levels for _ in range(count)]
    found = regressions({"install.cpu_s": values})
    assert [it.headline.run.run_id for it in found] == ["run-114", "run-74", "run-30"]


BUSY = {"pytest.wall_s": step(seed=1), "pytest.cpu_s": noisy((180, 32), seed=2)}


def test_wall_time_alone_is_reported_and_does_not_alarm() -> None:
    found = history(runs(BUSY), KEYS)
    change = only(found).headline
    assert change.wall_alone
    assert change.point.confirmed
    assert not found.of(Judgement.REGRESSION)


def test_wall_time_alone_alarms_when_it_lasts() -> None:
    assert regressions({"pytest.wall_s": step(since=30), "pytest.cpu_s": noisy((180, 50), seed=2)})


@pytest.mark.parametrize(
    ("wall", "expected"),
    [
        (((100, 20), (115, 40)), ["run-34"]),  # noise of a busy machine shifted its place
        (((100, 20), (115, 14), (132, 26)), ["run-34", "run-20"]),  # two causes
    ],
)
def test_wall_time_that_rose_before_cpu_seconds_is_no_cause_of_its_own(
    wall: Sequence[tuple[float, int]], expected: list[str]
) -> None:
    values = {"pytest.wall_s": noisy(*wall), "pytest.cpu_s": noisy((180, 34), (207, 26), seed=2)}
    assert [it.headline.run.run_id for it in regressions(values)] == expected


def test_cpu_seconds_that_never_differ_say_nothing_about_wall_time() -> None:
    assert regressions({**BUSY, "pytest.cpu_s": [180.0] * 32})


def test_counts_alarm_at_once_unless_they_grow_little() -> None:
    values = {"compile.units": [20.0] * 3 + [24.0], "generate.lines": [1000.0] * 3 + [1020.0]}
    [shift] = regressions(values)
    units, lines = sorted(shift.changes, key=lambda change: change.measure)
    assert units.judgement.is_open
    assert lines.is_small
    assert not lines.judgement.is_open


def leaking(*, seed: int = 1, level: float = 100.0, by: float = 0.002) -> list[float]:
    """A little more in each run from run 40 on, 60 times."""
    values = noisy((level, 120), seed=seed)
    return [value * (1 + by) ** min(max(n - 39, 0), 60) for n, value in enumerate(values)]


def test_a_leak_is_one_regression_with_the_runs_in_which_it_began_and_ended() -> None:
    values = {"install.wall_s": leaking(), "install.cpu_s": leaking(seed=2, level=180)}
    [shift] = regressions(values)
    change = shift.headline
    assert {it.measure for it in shift.changes} == {*values}
    assert change.text.startswith("install +")
    assert change.text.endswith(" gradually")
    assert change.reached is not None
    order = [run.run_id for run in runs(values)]
    begin, first, end = (
        order.index(it.run_id) for it in (change.before_run, change.run, change.reached)
    )
    assert begin < 40 <= first
    assert end > 85


def test_an_accepted_leak_is_open_again_if_it_goes_on() -> None:
    values = leaking(by=0.004)
    [early] = regressions({"install.wall_s": values[:80]})
    change = early.headline
    known = acceptance(change.measure, change.point.after, run=change.run.run_id)
    assert not regressions({"install.wall_s": values[:82]}, known)
    [late] = regressions({"install.wall_s": values}, known)
    assert late.headline.point.after > 1.05 * change.point.after


def test_a_step_within_a_leak_of_another_stage_is_another_change() -> None:
    steps = step(at=70, since=50, seed=3)
    [one, other] = regressions({"install.wall_s": leaking(), "pytest.wall_s": steps})
    assert {one.headline.is_gradual, other.headline.is_gradual} == {True, False}


def test_a_drift_is_reported_with_its_first_run() -> None:
    values = [value * (1 + n / 200) for n, value in enumerate(noisy((100, 60)))]
    found = history(runs({"install.wall_s": values}), KEYS)
    [series] = found.environments[0].series
    assert not found.of(Judgement.REGRESSION)
    assert series.drifts_since is not None
    assert series.drifts_since.run_id == "run-0"


def test_wall_time_of_a_part_is_held_against_the_cpu_seconds_of_the_whole() -> None:
    values = {"compile.wall_s": step(seed=1), "install.cpu_s": noisy((180, 32), seed=2)}
    assert not regressions(values)


@pytest.mark.parametrize("cores", [2, 10, 64])
def test_wall_time_alone_of_a_parallel_build_does_not_alarm(cores: int) -> None:
    values = {
        "install.wall_s": step(100, 130, since=6, seed=1),
        "install.cpu_s": noisy((95.0 * cores, 26), seed=2),
        "total.wall_s": step(150, 180, since=6, seed=3),
        "total.cpu_s": noisy((95.0 * cores + 50, 26), seed=4),
    }
    found = history(runs(values), KEYS)
    assert only(found).headline.wall_alone
    assert not found.of(Judgement.REGRESSION)


def test_a_part_of_a_parallel_build_is_held_against_the_wall_time_of_the_whole() -> None:
    values = {
        "link.wall_s": step(5, 6.5, seed=1),
        "install.wall_s": noisy((100, 32), seed=3),
        "install.cpu_s": noisy((900, 32), seed=2),
    }
    # 1.5 % of the install: its CPU seconds would hide it.
    assert regressions(values)


def test_seconds_that_would_be_lost_among_those_of_the_whole_are_not_expected_there() -> None:
    values = {"link.wall_s": step(5, 6.5, seed=1), "install.cpu_s": noisy((900, 32), seed=2)}
    assert regressions(values)


@pytest.mark.parametrize("size", [1.08, 1.15, 1.3])
def test_a_busy_machine_makes_the_parts_of_a_build_slower_too(size: float) -> None:
    """The CPU seconds of a link are too few to be seen among those of the install."""
    walls = {"link": 5.0, "compile": 80.0, "install": 100.0}
    values = {
        f"{stage}.wall_s": step(seconds, seconds * size, since=6, seed=at)
        for at, (stage, seconds) in enumerate(walls.items())
    }
    found = history(runs({**values, "install.cpu_s": noisy((180, 26), seed=9)}), KEYS)
    assert not found.of(Judgement.REGRESSION)
    assert only(found).headline.wall_alone


def test_ten_times_the_wall_time_waits_for_nothing() -> None:
    assert regressions(
        {"pytest.wall_s": step(30, 300, since=6), "pytest.cpu_s": noisy((180, 26), seed=2)}
    )


def test_unknown_cpu_seconds_excuse_nothing() -> None:
    few: list[float | None] = [None] * 30 + [180.0, 181.0]
    assert regressions({**BUSY, "pytest.cpu_s": few})
