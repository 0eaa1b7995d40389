"""``run --select``: the request, and the meaning of a run of selected operators."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from ci import cli
from ci.commands import run as run_command
from ci.errors import ExitCode, UsageError
from ci.facts.environment_key import environment_key
from ci.facts.operators import read_record, recorded_properties
from ci.facts.recorded_contract import make_contract
from ci.facts.sentences import on_rows
from ci.facts.suite import UNSELECTED, restrict_to_selection
from ci.model.outcomes import OperatorTest, Outcome, Selection, State, Suite
from ci.model.results import PlatformResult, RunResult
from ci.plan.config import Config, NetworkConfig, PlatformConfig, SelectionConfig
from ci.plan.project import Project, refuse_typos
from ci.plan.request import selected_operators
from ci.plan.site import SiteConfig
from ci.store.folder import read_results
from tests.cases import narrowed
from tests.ci.local_engine import LocalEngine

CONFIG = """\
project: tiny
platforms:
  cpu: {}
stages:
- {name: build, command: "true"}
- {name: pytest, command: python -m pytest -q -p no:cacheprovider, kind: pytest}
contracts: contracts
selection: {variable: TINY_OPERATORS, files: [bases/*.h]}
"""
# A library that is narrowed by the variable, and its suite: `test_each` is of single operators,
# `test_pair` calls two of them.
SUITE = """\
import fnmatch
import os
import re
import pytest

ALL = ["abs", "add", "add_", "mul"]
ASKED = os.environ["TINY_OPERATORS"]
PATTERNS = ASKED.split(",") if ASKED else ["*"]
BUILT = [name for name in ALL if any(fnmatch.fnmatch(name, p) for p in PATTERNS)]
LEFT_OUT = len(ALL) - len(BUILT)
TESTED = BUILT


@pytest.fixture(autouse=True)
def selection(record_property):
    if ASKED:
        recorded = {"asked": ASKED, "operators": BUILT, "overloads": len(BUILT), "of": len(ALL)}
        record_property("selection", {**recorded, "left_out": {"test_ops.py::test_each": LEFT_OUT}})


@pytest.mark.parametrize("name", [f"{name}.out-float32-cpu-slot8" for name in TESTED])
def test_overload(name, record_property):
    recorded = {"overload": name.split("-")[0], "dtype": "float32", "slot": 8, "device": "cpu"}
    recorded |= {"active": True, "executed": 1, "ran_device": "cpu", "ran_slot": 8}
    for key, value in recorded.items():
        record_property(key, value)


@pytest.mark.parametrize("name", BUILT)
def test_each(name):
    pass


def test_pair():
    if not {"abs", "mul"} <= set(BUILT):
        pytest.skip("operator not selected: this library was built without one")
"""

CONTRACT = """\
schema_version: 2
platform: cpu
device: cpu
dtypes: {}
operators:
  test_ops.py::test_overload:
    slot 8: {abs.out: float32, add.out: float32, add_.out: float32, mul.out: float32}
tests:
  test_ops.py::test_each: 4
  test_ops.py::test_pair: 1
"""


@dataclass
class Tiny:
    """A project whose contract is of all its operators, and the command line on it."""

    folder: Path

    @property
    def source(self) -> Path:
        return self.folder / "source"

    def plant(self, old: str, new: str) -> None:
        suite = self.source / "test_ops.py"
        assert old in suite.read_text()
        suite.write_text(suite.read_text().replace(old, new))

    def command(self, *arguments: object) -> int:
        return cli.main([*map(str, arguments), "--results", str(self.folder / "results")])

    def run(self, *arguments: str) -> tuple[int, PlatformResult]:
        code = self.command("run", "cpu", "--source", self.source, *arguments)
        [row] = self.latest.platforms
        return code, row

    @property
    def latest(self) -> RunResult:
        return read_results(self.folder / "results" / "latest" / "results.json")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    monkeypatch.setattr(run_command, "select_engine", lambda _: LocalEngine(containers=False))
    for name in ("INFINI_CI_SITE", "TINY_OPERATORS"):
        monkeypatch.delenv(name, raising=False)
    project = Tiny(tmp_path)
    (project.source / "bases").mkdir(parents=True)
    (project.source / "ci.yaml").write_text(CONFIG)
    (project.source / "test_ops.py").write_text(SUITE)
    (project.source / "contracts").mkdir()
    (project.source / "contracts" / "cpu.yaml").write_text(CONTRACT)
    return project


class TestRequestedOptions:
    SECTION = SelectionConfig(variable="TINY_OPERATORS")

    def asked(
        self,
        folder: Path,
        option: str | None = None,
        section: SelectionConfig | None = SECTION,
        **environ: str,
    ) -> str | None:
        project = Project(
            path=folder / "ci.yaml",
            config=Config(project="tiny", platforms={"cpu": PlatformConfig()}, selection=section),
            site=SiteConfig(),
            environ=environ,
            pip=NetworkConfig(),
        )
        return selected_operators(project, option, folder)

    @pytest.mark.parametrize("text", ["abs,fft_*", "abs fft_*", " abs, fft_*,\n"])
    def test_names_and_patterns_have_one_form(self, tmp_path: Path, text: str) -> None:
        assert self.asked(tmp_path, text) == "abs,fft_*"
        assert self.asked(tmp_path, TINY_OPERATORS=text) == "abs,fft_*"

    def test_the_option_wins_and_can_ask_for_everything(self, tmp_path: Path) -> None:
        assert self.asked(tmp_path, "abs", TINY_OPERATORS="mul") == "abs"
        for everything in ("all", ""):
            assert self.asked(tmp_path, everything, TINY_OPERATORS="mul") is None
        assert self.asked(tmp_path) is None

    def test_a_file_of_the_sources_is_named_as_a_container_has_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = tmp_path / "source"
        (source / "few").mkdir(parents=True)
        (source / "few" / "ops.yaml").write_text("operators: [abs]\n")
        monkeypatch.chdir(tmp_path)
        for name in ("source/few/ops.yaml", "few/ops.yaml", str(source / "few" / "ops.yaml")):
            assert self.asked(source, TINY_OPERATORS=name) == "few/ops.yaml"

    def test_a_file_that_no_container_gets(self, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.mkdir()
        (source / "ignored.yml").write_text("")
        (source / ".gitignore").write_text("ignored.yml\n")
        (tmp_path / "elsewhere.yaml").write_text("")
        subprocess.run(["git", "init", "--quiet"], cwd=source, check=True)
        for name, message in (
            ("no.yaml", "--select: the file no.yaml does not exist"),
            ("ignored.yml", "--select: .*/ignored.yml is not among the sources that a run copies"),
            (str(tmp_path / "elsewhere.yaml"), "--select: .*/elsewhere.yaml is not among"),
        ):
            with pytest.raises(UsageError, match=message) as caught:
                self.asked(source, name)
            assert str(caught.value.remedy).count("--select") == 1

    def test_a_project_that_cannot_be_narrowed(self, tmp_path: Path) -> None:
        message = r"--select: .*/ci\.yaml: got no `selection:`"
        with pytest.raises(UsageError, match=message) as caught:
            self.asked(tmp_path, "abs", section=None)
        assert "selection: {variable: NAME}" in str(caught.value.remedy)
        assert self.asked(tmp_path, section=None, TINY_OPERATORS="abs") is None


def suite(*overloads: str, **functions: Counter[State]) -> Suite:
    tests = {OperatorTest("test_overload", 8, name, "float32"): PASSED for name in overloads}
    return Suite(device="cpu", operators=tests, functions=functions, others=None)


PASSED = State(Outcome.PASSED)


class TestTypingErrors:
    def refuse(self, folder: Path, selected: str) -> None:
        known = suite("gelu.out", "fft_fft.out", "fft_ifft.out")
        (folder / "bases").mkdir()
        (folder / "bases" / "rms_norm.h").touch()
        refuse_typos(selected, known, folder, ["bases/*.h"])

    @pytest.mark.parametrize(
        ("selected", "wrong", "meant"),
        [
            ("gelu,gelo", "gelo", "gelu"),
            ("rms_nrm", "rms_nrm", "rms_norm"),
        ],
    )
    def test_what_is_nearly_a_known_name(
        self, tmp_path: Path, selected: str, wrong: str, meant: str
    ) -> None:
        message = f"'{wrong}' is not a known operator; did you mean '{meant}'"
        with pytest.raises(UsageError, match=message):
            self.refuse(tmp_path, selected)

    @pytest.mark.parametrize(
        ("selected", "hint"), [("fft_fff*", r"; did you mean 'fft_fft'\?"), ("gelu,xyz*", "")]
    )
    def test_a_pattern_without_a_match(self, tmp_path: Path, selected: str, hint: str) -> None:
        pattern = re.escape(selected.split(",")[-1])
        with pytest.raises(UsageError, match=f"no known operator matches '{pattern}'{hint}$"):
            self.refuse(tmp_path, selected)

    @pytest.mark.parametrize("selected", ["gelu,fft_*", "*", "rms_norm", "xyzzy", "few/gelo.yaml"])
    def test_what_may_be_right(self, tmp_path: Path, selected: str) -> None:
        """A new operator is known to the build alone."""
        self.refuse(tmp_path, selected)


class TestNarrowing:
    SELECTION = Selection(
        asked="abs", operators=frozenset({"abs"}), overloads=1, of=3, left_out={"test_each": 2}
    )

    def test_what_was_not_selected_is_expected_no_more(self) -> None:
        expected = suite("abs.out", "add.out", "abs_", test_each=Counter({PASSED: 3}))
        found = suite("abs.out", test_each=Counter({PASSED: 1}))
        assert restrict_to_selection(expected, found, self.SELECTION) == (found, found)

    def test_no_more_tests_are_excused_than_were_left_out(self) -> None:
        expected = suite(test_each=Counter({PASSED: 4}), test_other=Counter({PASSED: 2}))
        found = suite(test_each=Counter({PASSED: 1}), test_other=Counter({UNSELECTED: 1}))
        expected, found = restrict_to_selection(expected, found, self.SELECTION)
        assert expected.functions == {
            "test_each": Counter({PASSED: 2}),
            "test_other": Counter({PASSED: 1}),
        }
        assert found.functions == {"test_each": Counter({PASSED: 1})}

    @pytest.mark.parametrize(
        "properties", [None, [], [["selection", None]], [["selection", {"asked": "abs"}]]]
    )
    def test_what_cannot_be_read_narrows_nothing(self, properties: object) -> None:
        recorded = recorded_properties({"user_properties": properties})
        assert read_record("selection", recorded) is None


HALF = on_rows.selected(2, 4)


def test_a_selected_run_is_judged_by_what_was_selected(
    tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    code, row = tiny.run("--select", "add*")
    assert code == ExitCode.PASSED
    assert row.findings[:2] == (on_rows.selected_suite(), HALF)
    assert on_rows.overloads_executed(["2 of 2"]) in row.findings
    contract = {on_rows.no_contract.code, on_rows.contract_differs.code}
    assert not [note for note in row.findings if note.code in contract]
    assert row.environment["selection"] == {"operators": "add*", "overloads": 2, "of": 4}
    assert environment_key(row).selection == "add*"
    assert HALF.text in capsys.readouterr().out.replace("\n", " ")
    table = (tiny.folder / "results" / "latest" / "results.md").read_text()
    assert HALF.text in table


def test_the_callers_variable_selects_too(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_OPERATORS", "abs,mul")
    code, row = tiny.run()
    assert (code, row.findings[1]) == (ExitCode.PASSED, HALF)
    code, row = tiny.run("--select", "all")
    assert (code, row.findings[0]) == (ExitCode.PASSED, on_rows.full_suite())


@pytest.mark.parametrize(
    ("old", "new", "breach"),
    narrowed(
        [
            ("TESTED = BUILT", "TESTED = BUILT[1:]", "1 test vanished: float32 of add.out (slot 8"),
            (
                "LEFT_OUT = len(ALL)",
                "LEFT_OUT = -1 + len(ALL)",
                "1 test vanished: test_ops.py: test_each (was passed)",
            ),
            (
                "    for key, value",
                '    pytest.skip("operator not selected: so it says")\n    for key, value',
                "2 tests pass -> skip: float32 of add.out, add_.out (slot 8; passed -> operator",
            ),
            (
                "def test_pair():\n",
                'def test_pair():\n    pytest.skip("no sample: so it says")\n',
                "1 test pass -> skip: test_ops.py: test_pair (passed -> no sample)",
            ),
        ],
        kept=2,
    ),
    ids=["vanished", "not left out", "skipped", "another reason"],
)
def test_a_planted_breach_of_what_was_selected(tiny: Tiny, old: str, new: str, breach: str) -> None:
    tiny.plant(old, new)
    code, row = tiny.run("--select", "add*")
    assert code == ExitCode.PRODUCT_FAILURE
    assert [note for note in row.notes if note.startswith(f"contract: {breach}")]


def test_a_narrow_library_does_not_pass_for_a_whole_one(tiny: Tiny) -> None:
    tiny.plant('ASKED = os.environ["TINY_OPERATORS"]', 'ASKED = "abs,add"')
    code, row = tiny.run()
    assert code == ExitCode.PRODUCT_FAILURE
    note = "requested all operators; the library has abs,add: selected 2 of 4 overloads"
    assert row.notes[0] == note
    evidence = [each.text for each in row.verdict.evidence]
    assert evidence[0] == note
    assert any(text.startswith("contract: 4 tests vanished: ") for text in evidence)
    code, row = tiny.run("--select", "mul")
    assert (code, row.notes[0]) == (
        ExitCode.PRODUCT_FAILURE,
        "requested mul; the library has abs,add: selected 2 of 4 overloads",
    )


def test_a_library_that_does_not_say_what_it_has(tiny: Tiny) -> None:
    tiny.plant("    if ASKED:\n", "    if False:\n")
    code, row = tiny.run("--select", "abs")
    assert code == ExitCode.PRODUCT_FAILURE
    assert on_rows.selection_unrecorded("abs") in row.findings
    assert any(note.startswith("contract: 6 tests vanished") for note in row.notes)


def test_no_contract_is_written_from_a_selected_run(
    tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    contract = tiny.source / "contracts" / "cpu.yaml"
    before = contract.read_text()
    tiny.run("--select", "abs")
    capsys.readouterr()
    config = tiny.source / "ci.yaml"
    assert tiny.command("contract", "cpu", "--config", config) == ExitCode.USAGE
    printed = capsys.readouterr().err
    assert "has only selected operators: abs" in printed
    assert "python -m ci run cpu --select all" in printed
    assert contract.read_text() == before
    with pytest.raises(UsageError, match="has only selected operators") as caught:
        make_contract(tiny.latest, "cpu", tiny.folder / "results", config="tests/simulated/ci.yaml")
    remedy = "python -m ci run cpu --config tests/simulated/ci.yaml --select all"
    assert caught.value.remedy == f"Run all operators first: {remedy}"


@pytest.mark.parametrize("is_base", [True, False])
def test_a_selected_run_is_no_baseline_for_a_full_one(
    tiny: Tiny, capsys: pytest.CaptureFixture[str], *, is_base: bool
) -> None:
    assert tiny.run()[0] == ExitCode.PASSED
    full = tiny.latest.run_id
    tiny.run("--select", "add*")
    selected = tiny.latest.run_id
    sides = (selected, full) if is_base else (full, selected)
    capsys.readouterr()
    assert tiny.command("compare", *sides) == ExitCode.PASSED
    shown = capsys.readouterr().out
    base, head = ("add*", "all operators") if is_base else ("all operators", "add*")
    assert f"operators differ: base has {base}, head has {head}; only tests of both" in shown
    assert "vanished" not in shown
    assert "times are not compared because the environments differ" in shown
    assert tiny.command("compare", *sides, "--fail-on", "regression") == ExitCode.USAGE
    assert "not comparable, selected operators differ: base has " in capsys.readouterr().err
    tiny.command("compare", *sides, "--format", "json")
    [platform] = json.loads(capsys.readouterr().out)["platforms"]
    recorded = [platform[side]["selected"] for side in ("base", "head")]
    assert recorded == (["add*", None] if is_base else [None, "add*"])
    assert (platform["tests"]["regression"], platform["times"]["compared"]) == (False, False)
    tiny.command("compare", *sides, "--format", "markdown")
    assert "selected operators differ" in capsys.readouterr().out


def test_what_both_have_is_compared(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.plant("    for key, value", '    assert "add_" not in name\n    for key, value')
    tiny.run("--select", "add*")
    capsys.readouterr()
    contract = tiny.source / "contracts" / "cpu.yaml"
    assert tiny.command("compare", contract, "latest", "--fail-on", "regression") == 4
    shown = capsys.readouterr().out
    assert "newly failing (1)" in shown
    assert "vanished" not in shown


def test_a_run_goes_on_with_what_was_selected(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.run("--select", "abs")
    results = tiny.folder / "results"
    run_id = tiny.latest.run_id
    request = json.loads((results / run_id / "request.json").read_text())
    assert request["selected"] == "abs"
    monkeypatch.setenv("TINY_OPERATORS", "mul")
    for left in (results / run_id / "results.json", *(results / run_id / "cpu").iterdir()):
        left.unlink()
    assert tiny.command("run", "--resume", run_id) == ExitCode.PASSED
    [row] = read_results(results / run_id / "results.json").platforms
    assert row.environment["selection"] == {"operators": "abs", "overloads": 1, "of": 4}
    capsys.readouterr()
    assert tiny.command("run", "--resume", run_id, "--select", "mul") == ExitCode.USAGE
    assert "--resume: continues the run with its original" in capsys.readouterr().err


def test_typing_errors_end_before_the_run(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    results = tiny.folder / "results"
    assert tiny.command("run", "cpu", "--source", tiny.source, "--select", "ads") == ExitCode.USAGE
    assert "'ads' is not a known operator; did you mean 'a" in capsys.readouterr().err
    assert not results.exists()


def test_one_variable_has_one_meaning(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny.source / "ci.yaml"
    config.write_text(CONFIG.replace("cpu: {}", "cpu: {environment: {TINY_OPERATORS: abs}}"))
    assert tiny.command("run", "cpu", "--source", tiny.source) == ExitCode.USAGE
    printed = capsys.readouterr().err
    assert "ci.yaml:8: selection.variable: got " in printed
    assert "expected a variable that no 'environment' of this file sets" in printed
