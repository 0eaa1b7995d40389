"""``contract`` and ``compare`` on real runs of a tiny suite: they report the planted changes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ci import cli
from ci.commands import run as run_command
from ci.errors import ExitCode
from ci.facts.sentences import on_rows, on_tests
from ci.model.results import RunResult
from ci.model.verdicts import Evidence
from ci.store.folder import default_url, read_results
from ci.store.store import Store
from tests.cases import narrowed
from tests.ci.local_engine import LocalEngine

Output = pytest.CaptureFixture[str]

WRITE_CONTRACT = "python -m ci contract cpu"
CONFIG = """\
project: tiny
platforms:
  cpu: {}
  ascend: {devices: {count: 0}}
stages:
- {name: build, command: "true"}
- {name: pytest, command: python -m pytest -q, kind: pytest}
contracts: contracts
"""
# Operator tests as a library's suite has them; "no sample" and the like are what they skip for.
SUITE = """\
import os
import pytest

DEVICE = os.environ["INFINI_CI_TORCH_DEVICE"]
OUTCOMES = {outcomes}

@pytest.mark.parametrize("name", [f"{{name}}-{{DEVICE}}-slot8" for name in OUTCOMES])
def test_overload(name, record_property):
    overload, dtype, *_ = name.split("-")
    outcome = OUTCOMES[f"{{overload}}-{{dtype}}"]
    record_property("overload", overload)
    record_property("dtype", dtype)
    record_property("slot", 8)
    record_property("device", DEVICE)
    record_property("platform", os.environ["INFINI_CI_PLATFORM"])
    record_property("active", True)
    if os.environ.get("INFINI_CI_SIMULATED") == "1" or {lies}:
        record_property("simulated", True)
        record_property("kernel", "own")
    if outcome not in ("passed", "failed"):
        record_property("reason", outcome)
        pytest.skip(f"{{outcome}}: so it is")
    record_property("executed", 1)
    record_property("ran_device", {ran_device!r} or DEVICE)
    record_property("ran_slot", 8)
    assert outcome == "passed"

@pytest.mark.parametrize("n", range({others}))
def test_other(n):
    pass
"""
OUTCOMES = {
    "add.out-float32": "passed",
    "add.out-bool": "dtype unsupported",
    "mul.out-float32": "passed",
}


@dataclass
class Tiny:
    """A project, and the command line on it."""

    folder: Path

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def contract(self) -> Path:
        return self.folder / "source" / "contracts" / "cpu.yaml"

    def write(
        self, changes: dict[str, str | None], *, others: int = 3, ran: str = "", lies: bool = False
    ) -> None:
        outcomes = {name: how for name, how in {**OUTCOMES, **changes}.items() if how}
        text = SUITE.format(outcomes=outcomes, others=others, ran_device=ran, lies=lies)
        (self.folder / "source" / "test_ops.py").write_text(text)

    def simulate(self, *, simulated: bool = True) -> None:
        setting = "simulated: true" if simulated else "devices: {count: 0}"
        text = CONFIG.replace("devices: {count: 0}", setting)
        (self.folder / "source" / "ci.yaml").write_text(text)

    def run(self, platform: str = "cpu") -> tuple[int, RunResult]:
        code = self.command("run", platform, "--source", self.folder / "source")
        return code, read_results(self.results / "latest" / "results.json")

    def command(self, *arguments: object) -> int:
        return cli.main([*map(str, arguments), "--results", str(self.results)])

    def write_contract(self, *arguments: object, platform: str = "cpu") -> int:
        config = self.folder / "source" / "ci.yaml"
        return self.command("contract", platform, "--config", config, *arguments)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    monkeypatch.setattr(run_command, "select_engine", lambda _: LocalEngine(containers=False))
    monkeypatch.delenv("INFINI_CI_SITE", raising=False)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "ci.yaml").write_text(CONFIG)
    project = Tiny(tmp_path)
    project.write({})
    return project


def notes(result: RunResult) -> str:
    return "; ".join(result.platforms[0].notes)


def about_contract(result: RunResult) -> Evidence:
    """Return the only note on the contract."""
    codes = {on_rows.contract_differs.code, on_rows.no_contract.code}
    [note] = [it for it in result.platforms[0].findings if it.code in codes]
    return note


def test_a_run_without_a_contract_says_how_to_write_one(tiny: Tiny) -> None:
    code, result = tiny.run()
    assert code == ExitCode.PASSED
    note = about_contract(result)
    assert (note.code, note.parameters["platform"]) == (on_rows.no_contract.code, "cpu")
    assert str(note.parameters["update"]).startswith(WRITE_CONTRACT)
    assert on_rows.overloads_executed(["2 of 2"]) in result.platforms[0].findings
    [count] = result.platforms[0].overloads
    assert count.model_dump() == {
        "slot": 8,
        "device": "cpu",
        "active": 2,
        "executed": 2,
        "passed": 2,
        "simulated": False,
        "kernels": {},
    }


def test_the_run_that_made_a_contract_fulfils_it(tiny: Tiny, capsys: Output) -> None:
    tiny.run()
    assert tiny.write_contract() == ExitCode.PASSED
    first = tiny.contract.read_bytes()
    assert b"add.out: {passed: float32, dtype unsupported: bool}" in first
    assert b"test_ops.py::test_other: 3" in first
    capsys.readouterr()
    assert tiny.write_contract() == ExitCode.PASSED
    assert tiny.contract.read_bytes() == first
    assert "no difference: 6 tests" in capsys.readouterr().out
    assert tiny.write_contract("--format=json") == ExitCode.PASSED
    printed = json.loads(capsys.readouterr().out)
    assert printed["contract"] == str(tiny.contract)
    assert set(printed["changes"].values()) == {0}
    code, result = tiny.run()
    assert (code, "contract" in notes(result)) == (ExitCode.PASSED, False)


@pytest.mark.parametrize(
    ("changes", "others", "breach"),
    narrowed(
        [
            (
                {"mul.out-float32": None},
                3,
                "1 test vanished: float32 of mul.out (slot 8; was passed)",
            ),
            ({}, 2, "1 test vanished: test_ops.py: test_other (was passed)"),
            (
                {"mul.out-float32": "no sample"},
                3,
                "1 test pass -> skip: float32 of mul.out (slot 8; passed -> no sample)",
            ),
            (
                {"mul.out-int64": "no sample"},
                3,
                "1 test newly skipped: int64 of mul.out (slot 8; no sample)",
            ),
        ],
        kept=2,
    ),
)
def test_a_planted_breach_shows_everywhere(
    tiny: Tiny, capsys: Output, changes: dict[str, str | None], others: int, breach: str
) -> None:
    tiny.run()
    tiny.write_contract()
    tiny.write(changes, others=others)
    capsys.readouterr()
    code, result = tiny.run()
    assert code == ExitCode.PRODUCT_FAILURE
    assert "Contract: 1 test " in capsys.readouterr().out  # the table's cell goes over lines
    note = about_contract(result)
    assert (note.code, note.parameters["changes"]) == (on_rows.contract_differs.code, [breach])
    assert str(note.parameters["update"]).startswith(WRITE_CONTRACT)
    change, _, group = breach.partition(": ")
    assert on_tests.contract_broken(change, group) in result.platforms[0].verdict.evidence
    assert tiny.command("compare", tiny.contract, "latest", "--fail-on", "regression") == 4
    kind, _, line = breach.removeprefix("1 test ").partition(": ")
    assert f"\n{kind} (1)\n  {line}\n" in capsys.readouterr().out
    # People look at it, and find it right.
    assert tiny.write_contract() == ExitCode.PASSED
    assert f"\n{kind} (1)\n  {line}\n" in capsys.readouterr().out
    assert tiny.run()[0] == ExitCode.PASSED


def test_a_planted_fallback_shows_everywhere(tiny: Tiny, capsys: Output) -> None:
    tiny.write({}, ran="cuda")
    code, result = tiny.run()
    elsewhere = (
        "requested cpu; 2 of 2 executed tests ran on cuda: add.out-float32-cpu-slot8, mul.out"
    )
    assert code == ExitCode.PRODUCT_FAILURE
    assert result.platforms[0].verdict.evidence[0].text.startswith(elsewhere)
    assert result.platforms[0].notes[0].startswith(elsewhere)
    assert "Requested cpu; 2 of 2 executed tests " in capsys.readouterr().out
    assert tiny.write_contract() == ExitCode.USAGE
    assert "was not on cpu: requested cpu; 2 of 2 executed" in capsys.readouterr().err
    assert not tiny.contract.exists()


def test_a_simulated_run_is_named_so_everywhere(tiny: Tiny, capsys: Output) -> None:
    tiny.simulate()
    code, result = tiny.run("ascend")
    shown = capsys.readouterr()
    [row] = result.platforms
    assert code == ExitCode.PASSED
    assert (row.label, row.simulated) == ("Ascend (simulated device)", True)
    [count] = row.overloads
    assert (count.simulated, count.kernels["own"]) == (True, 2)
    assert "Ascend (simulated device)" in shown.out
    assert "Ascend (simulated device): pytest finished" in shown.err
    markdown = (tiny.results / "latest" / "results.md").read_text()
    assert "| Ascend (simulated device) | Yes | 5 passed, 1 skipped" in markdown
    assert on_rows.simulated_device().text in markdown
    assert "\n## Ascend (simulated device)\n" in markdown
    assert tiny.write_contract(platform="ascend") == ExitCode.PASSED
    contract = tiny.folder / "source" / "contracts" / "ascend.yaml"
    assert "simulated: true\n" in contract.read_text()
    capsys.readouterr()
    assert tiny.run("ascend")[0] == ExitCode.PASSED
    capsys.readouterr()
    assert tiny.command("compare", contract, "latest", "--fail-on", "regression") == 0
    shown = capsys.readouterr()
    assert f"base  {contract} (simulated device): " in shown.out
    assert "/ascend (simulated device): 5 passed" in shown.out
    tiny.command("compare", contract, "latest", "--format", "json")
    [platform] = json.loads(capsys.readouterr().out)["platforms"]
    assert [platform[side]["simulated"] for side in ("base", "head")] == [True, True]


def test_a_simulated_run_serves_no_real_platform(tiny: Tiny, capsys: Output) -> None:
    tiny.run("ascend")
    assert tiny.write_contract(platform="ascend") == ExitCode.PASSED
    contract = tiny.folder / "source" / "contracts" / "ascend.yaml"
    tiny.simulate()
    capsys.readouterr()
    source = tiny.folder / "source"
    assert tiny.command("run", "ascend", "--source", source) == ExitCode.USAGE
    message = "simulated: got a contract for a real ascend, expected one for a simulated ascend"
    assert f"contracts/ascend.yaml:9: {message}" in capsys.readouterr().err
    real = contract.rename(contract.with_name("real.yaml"))
    assert tiny.run("ascend")[0] == ExitCode.PASSED
    capsys.readouterr()
    assert tiny.command("compare", real, "latest/ascend", "--fail-on", "regression") == 2
    shown = capsys.readouterr()
    assert f"not comparable, only one device is simulated: {real} and 20" in shown.err
    assert (
        "/ascend (simulated device)\nName another run of it, or leave out --fail-on.\n" in shown.err
    )
    assert tiny.command("compare", real, "latest/ascend") == ExitCode.PASSED
    tiny.simulate(simulated=False)
    capsys.readouterr()
    assert tiny.write_contract(platform="ascend") == ExitCode.USAGE
    message = ": got a run of a simulated ascend, expected a real one, as "
    assert f"{message}{source}/ci.yaml configures it\n" in capsys.readouterr().err
    assert not contract.exists()


@pytest.mark.parametrize("simulated", [True, False])
def test_the_requested_device_and_the_recorded_one_must_agree(tiny: Tiny, simulated: bool) -> None:
    tiny.simulate(simulated=simulated)
    suite = tiny.folder / "source" / "test_ops.py"
    if simulated:
        suite.write_text(suite.read_text().replace('"INFINI_CI_SIMULATED"', '"UNSET"'))
    else:
        tiny.write({}, lies=True)
    code, result = tiny.run("ascend")
    [row] = result.platforms
    assert code == ExitCode.PRODUCT_FAILURE
    assert (row.label, row.simulated) == ("Ascend (simulated device)", True)
    asked, saw = (
        ("simulated", "one that is not simulated") if simulated else ("real", "a simulated one")
    )
    assert row.verdict.evidence[0].text.startswith(
        f"requested a {asked} npu; 3 of 3 tests were on {saw}: add.out-float32-npu-slot8,"
    )


def test_a_failure_is_never_part_of_a_contract(tiny: Tiny, capsys: Output) -> None:
    tiny.write({"mul.out-float32": "failed"})
    tiny.run()
    assert tiny.write_contract() == ExitCode.USAGE
    assert "a contract cannot expect failures: test_ops.py::test_overload[mul.out-" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("has_contract", [True, False])
@pytest.mark.parametrize(
    ("changes", "options", "works"),
    narrowed(
        [
            ({}, {"others": 2}, True),
            ({"mul.out-float32": "failed"}, {"others": 2}, False),
            ({"mul.out-float32": "for no known reason"}, {"others": 2}, False),
            ({}, {"others": 2, "ran": "cuda"}, False),
        ],
        kept=2,
    ),
    ids=["passed", "failed", "unknown reason", "another device"],
)
def test_the_command_for_the_contract_is_proposed_where_it_works(
    tiny: Tiny,
    has_contract: bool,
    changes: dict[str, str | None],
    options: dict[str, Any],
    works: bool,
) -> None:
    if has_contract:
        tiny.run()
        assert tiny.write_contract() == ExitCode.PASSED
    tiny.write(changes, **options)
    _, result = tiny.run()
    expected = on_rows.contract_differs if has_contract else on_rows.no_contract
    note = about_contract(result)
    assert note.code == expected.code
    assert str(note.parameters["update"]).startswith(WRITE_CONTRACT) is works
    assert (note.parameters["update"] is None) is not works
    assert tiny.write_contract() == (ExitCode.PASSED if works else ExitCode.USAGE)


def test_a_run_that_broke_off_makes_no_contract(tiny: Tiny, capsys: Output) -> None:
    tiny.run()
    tiny.write_contract()
    suite = tiny.folder / "source" / "test_ops.py"
    suite.write_text(suite.read_text() + "\n\ndef test_crash():\n    os._exit(3)\n")
    code, result = tiny.run()
    assert code == ExitCode.PRODUCT_FAILURE
    assert "vanished" not in notes(result)
    assert tiny.write_contract() == ExitCode.USAGE
    assert "the tests of cpu did not finish in run" in capsys.readouterr().err
    first = next(
        path
        for path in tiny.results.glob("*/results.json")
        if path.parent.name not in ("latest", result.run_id)
    )
    assert tiny.write_contract("--run", first.parent.name) == ExitCode.PASSED


def test_a_broken_contract_file_stops_the_run(tiny: Tiny, capsys: Output) -> None:
    tiny.run()
    tiny.contract.parent.mkdir()
    tiny.contract.write_text("platfrom: cpu\n")
    assert tiny.command("run", "cpu", "--source", tiny.folder / "source") == ExitCode.USAGE
    shown = capsys.readouterr().err
    assert "contracts/cpu.yaml:1: platfrom: got an unknown key" in shown
    assert "did you mean 'platform'?" in shown
    assert tiny.write_contract() == ExitCode.PASSED  # which is the remedy


def test_comparing_two_runs(tiny: Tiny, capsys: Output) -> None:
    _, first = tiny.run()
    tiny.write({"mul.out-float32": "failed", "add.out-bool": "passed", "mul.out-bool": "passed"})
    tiny.run()
    capsys.readouterr()
    assert tiny.command("compare", first.run_id, "latest/cpu") == ExitCode.PASSED
    assert capsys.readouterr().out.endswith(
        "\n\nnewly failing (1)\n"
        "  float32 of mul.out (slot 8; passed -> failed: AssertionError: assert 'failed' =="
        " 'passed')\n\n"
        "skip -> pass (1)\n"
        "  bool of add.out (slot 8; dtype unsupported -> passed)\n\n"
        "added (1)\n"
        "  bool of mul.out (slot 8; passed)\n\n"
        "4 tests unchanged\n"
    )
    assert tiny.command("compare", first.run_id, "latest", "--fail-on", "regression") == 4
    assert tiny.command("compare", "latest", "latest", "--fail-on", "regression") == 0


def test_comparing_as_markdown_and_json(tiny: Tiny, capsys: Output) -> None:
    _, first = tiny.run()
    tiny.write({"mul.out-float32": None}, others=4)
    _, second = tiny.run()
    capsys.readouterr()
    tiny.command("compare", first.run_id, second.run_id, "--format", "markdown")
    shown = capsys.readouterr().out
    assert f"* base: {first.run_id}/cpu: 5 passed, 1 skipped\n* head: " in shown
    assert "| cpu | 1 test vanished; 1 test added" in shown
    assert "#### Vanished (1)\n\n* float32 of mul.out (slot 8; was passed)\n" in shown
    tiny.command("compare", first.run_id, second.run_id, "--format", "json")
    document = json.loads(capsys.readouterr().out)
    [platform] = document["platforms"]
    assert (platform["base"]["name"], document["regression"]) == (f"{first.run_id}/cpu", True)
    tests = platform["tests"]
    assert tests["counts"]["vanished"] == tests["counts"]["added"] == 1
    assert tests["changes"]["vanished"] == [
        {
            "function": "test_ops.py::test_overload",
            "overload": "mul.out",
            "dtype": "float32",
            "slot": 8,
            "before": "passed",
            "after": None,
        }
    ]
    assert tests["changes"]["added"] == [
        {"test": "test_ops.py::test_other[3]", "count": 1, "before": None, "after": "passed"}
    ]


def test_comparing_platforms(published: RunResult, tmp_path: Path, capsys: Output) -> None:
    with Store(default_url(tmp_path)) as store:
        store.save(published, {})
    run, results = published.run_id, ["--results", str(tmp_path)]
    assert cli.main(["compare", f"{run}/nvidia", f"{run}/moore", *results]) == ExitCode.PASSED
    assert cli.main(["compare", f"{run}/nvidia", "latest", *results]) == ExitCode.PASSED
    shown = capsys.readouterr().out
    assert f"head  {run}/moore: " in shown
    assert f"head  {run}/nvidia: " in shown
    assert cli.main(["compare", run, "latest", *results]) == ExitCode.PASSED
    shown = capsys.readouterr().out
    assert f"{run} -> latest: 6 platforms\n" in shown
    assert f"head  {run}/ascend: 7,406 passed, 8,904 skipped\n" in shown


@pytest.mark.parametrize(
    ("base", "head", "message"),
    [
        ("latst", "latest/moore", "the store holds no run 'latst'; did you mean 'latest'?"),
        ("latest/mooore", "latest", ": got platform 'mooore', expected ascend, cambricon, "),
        ("latest/mooore", "latest", "nvidia; did you mean 'moore'?"),
        ("latest/moore", "no.yaml", "no.yaml: no such file, expected a contract"),
    ],
)
def test_what_cannot_be_compared(
    published: RunResult, tmp_path: Path, capsys: Output, base: str, head: str, message: str
) -> None:
    with Store(default_url(tmp_path)) as store:
        store.save(published, {})
    assert cli.main(["compare", base, head, "--results", str(tmp_path)]) == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_two_contracts_need_no_store(tiny: Tiny, capsys: Output) -> None:
    tiny.run()
    other = tiny.folder / "other.yaml"
    assert tiny.write_contract("--output", other) == ExitCode.PASSED
    capsys.readouterr()
    assert cli.main(["compare", str(other), str(other), "--results", "nowhere"]) == 0
    assert capsys.readouterr().out.endswith("\n\nno difference: 6 tests\n")


def test_a_contract_needs_a_place_and_a_run(tiny: Tiny, capsys: Output) -> None:
    assert tiny.write_contract() == ExitCode.USAGE
    assert " contains no results yet\n" in capsys.readouterr().err
    config = tiny.folder / "source" / "ci.yaml"
    tiny.run()
    config.write_text(CONFIG.replace("contracts: contracts\n", ""))
    assert tiny.write_contract() == ExitCode.USAGE
    assert "contracts: got nothing, expected a folder" in capsys.readouterr().err


def test_a_run_of_another_project_is_no_contract_of_this_one(tiny: Tiny, capsys: Output) -> None:
    tiny.run()
    config = tiny.folder / "source" / "ci.yaml"
    config.write_text(CONFIG.replace("project: tiny", "project: great"))
    assert tiny.write_contract() == ExitCode.USAGE
    shown = capsys.readouterr().err
    assert f": got a run of project tiny, expected great, the project of {config}\n" in shown
    assert "Pass the configuration of that run with --config" in shown
    assert not tiny.contract.exists()
