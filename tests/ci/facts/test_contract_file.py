"""The contract file: compact, lossless, strict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ci.errors import ConfigError, ExitCode, UsageError
from ci.facts.contract import Contract, ContractBase, load_contract
from ci.facts.contract_text import contract_text
from ci.facts.difference import compare_suites
from ci.facts.sentences import on_rows
from ci.facts.suite import DTYPE_CLASSES, LACKS_INSTRUCTIONS, adapt_to_processor, suite_of
from ci.gates.regression import ChangeKind
from ci.model.outcomes import (
    SKIP_REASONS,
    OperatorTest,
    Outcome,
    Processor,
    State,
    Suite,
    TestOutcome,
)
from tests.ci.made_results import made_test
from tests.ci.operator_log import node_id
from tests.ci.review import check_golden

GOLDEN = Path(__file__).parent / "golden" / "contract_findings.txt"
PASSED = State(Outcome.PASSED)
HEAD = """\
schema_version: 3
platform: cpu
device: cpu
dtypes:
  all: bfloat16 bool complex64 float16 float32 float64 int64
  integer: int16 int32 int64 int8 uint8
  floating: bfloat16 float16 float32 float64
"""
SMALL = f"""{HEAD}\
operators:
  t.py::test_op:
    slot 0:
      add: floating
    slot 8:
      add.out: all
      mm.out: {{passed: floating, dtype unsupported: bool, no sample: int64}}
tests:
  t.py::test_a: 12
  t.py::test_b: {{passed: 1, skipped: 2}}
"""


def outcome(name: str, result: Outcome = Outcome.PASSED, reason: str | None = None) -> TestOutcome:
    return made_test(name, result, skip_reason=reason)


def contract(*tests: TestOutcome) -> Contract:
    return Contract(platform="cpu", suite=suite_of(tests))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cpu.yaml"


def load(path: Path, text: str) -> Contract:
    path.write_text(text, encoding="utf-8")
    return load_contract(path, platform="cpu")


def findings(path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError, match=r"cpu\.yaml:\d+: ") as caught:
        load(path, text)
    assert caught.value.exit_code is ExitCode.USAGE
    return [line.removeprefix(f"{path.parent}/") for line in str(caught.value).splitlines()]


def test_what_is_written(path: Path) -> None:
    dtypes = [*DTYPE_CLASSES["all"], "int8"]
    tests = [outcome(node_id("abs.out", dtype)) for dtype in dtypes]
    tests += [outcome(node_id("mm.out", dtype)) for dtype in DTYPE_CLASSES["floating"]]
    tests += [outcome(node_id("mm.out", "bool"), Outcome.SKIPPED, "dtype unsupported")]
    tests += [outcome(node_id("on", "nosample"), Outcome.SKIPPED, "vendor defect https://x/1#2")]
    tests += [outcome("t.py::test_a[1]"), outcome("t.py::test_a[2]"), outcome("t.py")]
    text = contract_text(contract(*tests), date=datetime(2026, 1, 2, tzinfo=UTC))
    head, _, body = text.partition("schema_version")
    assert "# Written on 2026-01-02 from a run:\n#   python -m ci contract cpu" in head
    assert (
        "schema_version" + body
        == f"""{HEAD}\
operators:
  tests/ops/test_torch_ops.py::test_overload:
    slot 8:
      abs.out: all int8
      mm.out: {{passed: floating, dtype unsupported: bool}}
      "on": {{"vendor defect https://x/1#2": nosample}}
tests:
  t.py: 1
  t.py::test_a: 2
"""
    )
    assert compare_suites(load(path, text).suite, suite_of(tests)).changes == ()


def test_the_torch_is_written_and_read(path: Path) -> None:
    made = replace(contract(outcome("t.py::test_a")), torch="2.13.0+cpu")
    text = contract_text(made)
    assert '\ndevice: null\ntorch: "2.13.0+cpu"\n' in text
    assert load(path, text).torch == "2.13.0+cpu"
    (finding,) = findings(path, text.replace('"2.13.0+cpu"', "[2.13]"))
    assert finding.endswith("torch: got [2.13], expected text")


def test_what_is_read(path: Path) -> None:
    suite = load(path, SMALL).suite
    assert suite.device == "cpu"
    assert len(suite.operators) == 4 + 7 + 6
    assert suite.operators[OperatorTest("t.py::test_op", 8, "mm.out", "int64")] == State(
        Outcome.SKIPPED, "no sample"
    )
    assert suite.functions["t.py::test_b"] == {
        State(Outcome.PASSED): 1,
        State(Outcome.SKIPPED): 2,
    }


def test_a_small_change_is_a_small_change_of_the_file() -> None:
    tests = [outcome(node_id(name)) for name in ("a.out", "b.out", "c.out")]
    changed = [*tests[:1], outcome(node_id("b.out"), Outcome.SKIPPED, "no sample"), *tests[2:]]
    before, after = (contract_text(contract(*each)).splitlines() for each in (tests, changed))
    assert [line for line in after if line not in before] == ["      b.out: {no sample: float32}"]
    assert len(before) == len(after)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
REASONS = st.sampled_from(SKIP_REASONS) | TEXT.map("vendor defect {}".format)
DTYPES = st.sampled_from(
    [*DTYPE_CLASSES["all"], "int8", "float", "int", "nosample", "true", "on", "all"]
)
VARIANTS = DTYPES | DTYPES.map("strided-{}".format)
NAMES = st.builds(
    node_id,
    st.sampled_from(["add.out", "abs_", "null", "1.5", "_x"]),
    VARIANTS,
    st.sampled_from(["cpu", "cuda"]),
    st.integers(0, 10),
)
OTHERS = st.builds("{}::{}{}".format, TEXT, TEXT, st.sampled_from(["", "[a]", "[b]", "[a-b-c]"]))
RESULTS = st.sampled_from([Outcome.PASSED, Outcome.XFAILED, Outcome.XPASSED, Outcome.SKIPPED])


@st.composite
def runs(draw: st.DrawFn) -> list[TestOutcome]:
    names = draw(st.sets(NAMES | OTHERS, max_size=30))
    tests = []
    for name in sorted(names):
        result = draw(RESULTS)
        reason = draw(REASONS) if result is Outcome.SKIPPED else None
        tests.append(outcome(name, result, reason))
    return tests


@given(runs())
def test_any_run_fulfils_the_contract_that_it_makes(
    tmp_path_factory: pytest.TempPathFactory, tests: list[TestOutcome]
) -> None:
    path = tmp_path_factory.mktemp("contract") / "cpu.yaml"
    text = contract_text(contract(*tests))
    loaded = load(path, text)
    assert compare_suites(loaded.suite, suite_of(tests)).changes == ()
    assert compare_suites(suite_of(tests), loaded.suite).changes == ()
    assert contract_text(loaded) == text
    assert contract_text(contract(*reversed(tests))) == text


def conditional(suite: Suite, needs: Mapping[str, str]) -> Suite:
    """A suite in which operator tests pass with features, by their overload."""
    return replace(
        suite,
        operators={
            test: state._replace(needs=needs.get(test.overload)) if state == PASSED else state
            for test, state in suite.operators.items()
        },
    )


NEEDS = st.dictionaries(
    st.sampled_from(["add.out", "abs_"]), st.sampled_from(["avx2", "avx2 fma or avx512f"])
)


@given(runs(), runs(), NEEDS, NEEDS)
def test_any_contract_can_be_written_as_what_differs_from_any_other(
    tmp_path_factory: pytest.TempPathFactory,
    tests: list[TestOutcome],
    others: list[TestOutcome],
    needs: dict[str, str],
    other_needs: dict[str, str],
) -> None:
    folder = tmp_path_factory.mktemp("contract")
    base = Contract(platform="ascend", suite=conditional(suite_of(others), other_needs))
    (folder / "base").mkdir()
    (folder / "base" / "ascend.yaml").write_text(contract_text(base), encoding="utf-8")
    wanted = Contract(
        platform="cpu",
        suite=conditional(suite_of(tests), needs),
        base=ContractBase("base/ascend.yaml", base),
    )
    text = contract_text(wanted)
    loaded = load(folder / "cpu.yaml", text)
    assert loaded.suite.operators == wanted.suite.operators
    assert loaded.suite.functions == wanted.suite.functions
    assert contract_text(loaded) == text


def test_a_contract_lists_only_what_differs_from_its_base() -> None:
    slots = [outcome(node_id("abs", slot=0)), outcome(node_id("add", slot=0))]
    shared = [outcome(node_id("abs.out")), outcome("t.py::test_a[1]"), outcome("t.py::test_a[2]")]
    base = contract(*slots, *shared, outcome(node_id("mm.out")), outcome("t.py::test_b"))
    skipped = outcome(node_id("mm.out"), Outcome.SKIPPED, "no sample")
    named = ContractBase("base.yaml", base)
    derived = replace(contract(*shared, skipped, outcome("t.py::test_c")), base=named)
    body = contract_text(derived).partition("operators:\n")[2]
    assert (
        body
        == """\
  tests/ops/test_torch_ops.py::test_overload:
    slot 0: null
    slot 8:
      mm.out: {no sample: float32}
tests:
  t.py::test_b: null
  t.py::test_c: 1
"""
    )
    same = contract_text(replace(base, base=named))
    assert same.endswith("operators: {}\ntests: {}\n")


def test_null_is_no_value_without_a_base(path: Path) -> None:
    text = SMALL.replace("test_a: 12", "test_a: null")
    assert findings(path, text) == [
        "cpu.yaml:16: tests.t.py::test_a: got nothing, expected a number of tests"
    ]


AVX2 = Processor(torch="AVX2", onednn="AVX2", features=frozenset({"avx2"}))
AVX512 = Processor(torch="AVX512", onednn="AVX512_CORE", features=frozenset({"avx2", "avx512bw"}))


@pytest.mark.parametrize(
    ("processor", "found", "kinds"),
    [
        pytest.param(AVX512, PASSED, [], id="passes"),
        pytest.param(AVX512, LACKS_INSTRUCTIONS, [ChangeKind.PASS_TO_SKIP], id="has it and skips"),
        pytest.param(AVX2, LACKS_INSTRUCTIONS, [], id="lacks it and skips"),
        pytest.param(AVX2, PASSED, [], id="lacks it and passes"),
        pytest.param(
            AVX2,
            State(Outcome.SKIPPED, "no sample"),
            [ChangeKind.PASS_TO_SKIP],
            id="another reason",
        ),
        pytest.param(AVX2, State(Outcome.FAILED), [ChangeKind.NEWLY_FAILING], id="fails"),
        pytest.param(None, LACKS_INSTRUCTIONS, [ChangeKind.PASS_TO_SKIP], id="unknown processor"),
    ],
)
def test_an_outcome_may_depend_on_the_processor(
    path: Path, processor: Processor | None, found: State, kinds: list[ChangeKind]
) -> None:
    entry = "mm.out: {passed with avx_ne_convert or avx512bw: bfloat16}"
    text = SMALL.replace("add.out: all", entry).replace(
        "      mm.out: {passed: f", "      x: {passed: f"
    )
    expected = load(path, text).suite
    test = OperatorTest("t.py::test_op", 8, "mm.out", "bfloat16")
    actual = replace(expected, operators={**expected.operators, test: found})
    changes = compare_suites(adapt_to_processor(expected, actual, processor), actual).changes
    assert [change.kind for change in changes] == kinds


@given(runs(), st.data())
def test_any_test_that_is_left_out_has_vanished(
    tests: list[TestOutcome], data: st.DataObject
) -> None:
    if tests:
        kept = list(tests)
        kept.remove(data.draw(st.sampled_from(tests)))
        base, head = suite_of(tests), suite_of(kept)
        assume(base.device == head.device)
        found = compare_suites(base, head)
        assert found.count(ChangeKind.VANISHED) == 1


@pytest.mark.parametrize("result", [Outcome.FAILED, Outcome.ERROR])
@pytest.mark.parametrize("name", ["t.py::test_a[x]", node_id("add.out")])
def test_a_failure_is_never_part_of_a_contract(name: str, result: Outcome) -> None:
    with pytest.raises(UsageError, match=r"a contract cannot expect failures: .*test_") as caught:
        contract_text(contract(outcome(name, result)))
    assert caught.value.remedy == "Fix or quarantine the failing tests, and run again."


@pytest.mark.parametrize("reason", [None, "too hot"])
def test_an_operator_test_needs_a_known_reason_to_skip(reason: str | None) -> None:
    with pytest.raises(UsageError, match=r"skipped without a known reason: .*add"):
        contract_text(contract(outcome(node_id("add.out"), Outcome.SKIPPED, reason)))


def test_what_could_not_be_read_back_is_not_written() -> None:
    odd = outcome("t.py::test_a[add.out]", Outcome.SKIPPED, "too hot")
    with pytest.raises(UsageError, match=r"skipped without a known reason: t\.py::test_a"):
        contract_text(contract(odd))


def test_other_tests_may_skip_without_a_reason(path: Path) -> None:
    text = contract_text(contract(outcome("t.py::test_a", Outcome.SKIPPED)))
    assert "t.py::test_a: {skipped: 1}" in text
    assert load(path, text).suite.operators == {}


MISTAKES = (
    ("tests:", "tets:"),
    ("device: cpu\n", ""),
    ("schema_version: 3", "schema_version: 4"),
    ("platform: cpu", "platform: cuda"),
    ("platform: cpu", "platform: cpu\nsimulated: 1"),
    ("platform: cpu", "platform: [cpu]"),
    ("    slot 0:", "    slot0:"),
    ("      add: floating", "      add: 7"),
    ("      add: floating", "      add: [floating]"),
    ("      add: floating", "      add:"),
    ("      add: floating", "      add: {}"),
    ("      add.out: all", "      add.out: all bool"),
    ("no sample: int64", "no sample: int64 float16"),
    ("      add: floating", "      add: bool flaoting"),
    ("      add: floating", "      add: bool,int64"),
    ("no sample: int64", "skipped: int64"),
    ("no sample: int64", "no simple: int64"),
    ("no sample: int64", "failed: int64"),
    ("no sample: int64", "passed with: int64"),
    ("passed: 1,", "passed with avx2: 1,"),
    ("platform: cpu", "base: 3\nplatform: cpu"),
    ("platform: cpu", "base: /a.yaml\nplatform: cpu"),
    ("platform: cpu", "base: a.yaml\nplatform: cpu"),
    ("platform: cpu", "base: cpu.yaml\nplatform: cpu"),
    ("test_a: 12", "test_a: 0"),
    ("test_a: 12", "test_a: true"),
    ("test_a: 12", "test_a: 12\n  t.py::test_a: 12"),
    ("add.out: all", "add: all\n      add: all"),
    ("operators:", "operators: 3\nother:"),
)


def test_golden_findings(path: Path) -> None:
    found = {}
    for old, new in MISTAKES:
        assert old in SMALL
        name = f"{old} -> {new}".replace("\n", "|")
        found[name] = "\n".join(findings(path, SMALL.replace(old, new, 1)))
    check_golden(GOLDEN, found)


def test_a_contract_of_a_simulated_device_says_so(path: Path) -> None:
    simulated = replace(contract(outcome(node_id("add.out"))), simulated=True)
    text = contract_text(simulated, config="tests/simulated/ci.yaml")
    assert f"#\n# {on_rows.simulated_device().text.capitalize()}.\n#\n" in text
    compiled = contract_text(replace(simulated, platform="metax"), config=None)
    assert f"#\n# {on_rows.compiled_only(None).text.capitalize()}.\n#\n" in compiled
    assert "#   python -m ci contract cpu --config tests/simulated/ci.yaml\n" in text
    assert "platform: cpu\nsimulated: true\ndevice: cpu\n" in text
    path.write_text(text, encoding="utf-8")
    assert load_contract(path, platform="cpu", simulated=True).simulated
    assert contract_text(load_contract(path), config="tests/simulated/ci.yaml") == text


@pytest.mark.parametrize(
    ("line", "simulated", "finding"),
    [
        (
            "simulated: true\n",
            False,
            "got a contract for a simulated cpu, expected one for a real cpu",
        ),
        (
            "simulated: false\n",
            True,
            "got a contract for a real cpu, expected one for a simulated cpu",
        ),
        ("", True, "got a contract for a real cpu, expected one for a simulated cpu"),
    ],
)
def test_no_contract_serves_the_other_kind_of_device(
    path: Path, line: str, simulated: bool, finding: str
) -> None:
    path.write_text(SMALL.replace("device: cpu\n", f"{line}device: cpu\n", 1), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"cpu\.yaml:\d: simulated: {finding}"):
        load_contract(path, simulated=simulated)
    assert load_contract(path, simulated=not simulated).simulated is not simulated


def test_all_findings_come_together(path: Path) -> None:
    text = SMALL.replace("test_a: 12", "test_a: no").replace("add: floating", "add: {on: bool}")
    assert [line.partition(": ")[0] for line in findings(path, text)] == [
        "cpu.yaml:11",
        "cpu.yaml:16",
    ]


@pytest.mark.parametrize("text", ["", "[]", "- a", "a: [", "\x07", "7"])
def test_another_file_is_refused(path: Path, text: str) -> None:
    assert findings(path, text)


def test_what_is_no_yaml_has_one_finding(path: Path) -> None:
    [found] = findings(path, "a: [")
    assert found.startswith("cpu.yaml:1: not valid YAML: ")


def test_a_file_that_cannot_be_read_is_named(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cpu\.yaml: no such file$"):
        load_contract(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"cpu\.yaml: cannot be read: 'utf-8' codec can't decode"):
        load_contract(path)
