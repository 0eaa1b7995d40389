"""What platforms pass, as JSON and as a page: of a store with two platforms, and of contracts."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ci import cli
from ci.errors import ExitCode
from ci.facts.sentences import on_tests
from ci.model.details import Details
from ci.model.outcomes import Outcome, TestOutcome
from ci.model.results import RunResult
from ci.model.verdicts import Evidence, Grade, Harness, Product, Verdict
from ci.report.capabilities import CapabilityDocument
from ci.store.folder import default_url
from ci.store.store import Store
from ci.util.invocation import REPOSITORY
from tests.ci.foreign_runs import RUN_ID
from tests.ci.made_results import made_test
from tests.ci.operator_log import node_id

Output = pytest.CaptureFixture[str]
LATER = "20270101T120000Z-nogit-0000"
PASSED, FAILED, SKIPPED = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED
HOSTILE = "<script>alert(1)</script>\u202e"
CONTRACTS = REPOSITORY / "tests/simulated/contracts"


def operator_test(
    overload: str,
    dtype: str,
    outcome: Outcome = PASSED,
    reason: str | None = None,
    **place: Any,
) -> TestOutcome:
    name = node_id(overload, dtype, **{"device": "cuda", **place})
    return made_test(name, outcome, skip_reason=reason)


NVIDIA = (
    operator_test("add.out", "float32"),
    operator_test("add.out", "int8", SKIPPED, "no kernel on this device"),
    operator_test("add.out", "int16", SKIPPED, "no sample"),
    operator_test("add.Scalar_out", "float32"),
    operator_test("add.Scalar_out", "bool", FAILED),
    operator_test("add", "float64", slot=0),
    operator_test("mul.out", "float32", FAILED),
    operator_test("div.out", "float32", SKIPPED, HOSTILE),
    operator_test("sub.out", "float32", device="cpu"),
)
ILUVATAR = (
    *(operator_test("add.out", it) for it in ("float16", "bfloat16", "float32", "float64")),
)


@pytest.fixture
def results(published: RunResult, tmp_path: Path) -> Path:
    """Two platforms; the later run has no operator tests of the second one."""
    first = published.model_copy(update={"run_id": RUN_ID, "platforms": published.platforms[:2]})
    later = {"run_id": LATER, "started_at": first.started_at.replace(year=2027)}
    with Store(default_url(tmp_path)) as store:
        old = {"nvidia": Details(tests=NVIDIA[:1]), "iluvatar": Details(tests=ILUVATAR)}
        store.save(first, old)
        store.save(first.model_copy(update=later), {"nvidia": Details(tests=NVIDIA)})
    return tmp_path


def exported(results: Path, kind: str, *options: str) -> int:
    output = ("--output", str(results / "out"), "--format", kind)
    return cli.main(["export", "--results", str(results), *output, *options])


def document(results: Path) -> CapabilityDocument:
    return CapabilityDocument.model_validate_json(
        (results / "out" / "capabilities.json").read_text()
    )


def test_each_platform_has_its_newest_run(results: Path, capsys: Output) -> None:
    assert exported(results, "capabilities") == ExitCode.PASSED
    assert capsys.readouterr().out == f"{results}/out/capabilities.json: 2 platforms\n"
    nvidia, iluvatar = document(results).platforms
    assert (nvidia.platform, nvidia.run_id, nvidia.device) == ("nvidia", LATER, "cuda")
    assert (iluvatar.platform, iluvatar.run_id) == ("iluvatar", RUN_ID)
    assert nvidia.slots[0]["add"].passed == ("float64",)
    add = nvidia.slots[8]["add.out"]
    assert add.passed == ("float32",)
    assert add.not_executed == {"int8": "no kernel on this device", "int16": "no sample"}
    assert nvidia.slots[8]["mul.out"].failed == ("float32",)
    assert "sub.out" not in nvidia.slots[8]  # a test for another device


MISPLACED = on_tests.misplaced("requested cuda; 1 of 1 executed tests ran on cpu")


@pytest.mark.parametrize(
    ("product", "evidence", "expected"),
    [
        (Product.FAILED, [on_tests.failed_tests(1, 0, 0, ["t"])], "20280101T120000Z-nogit-0000"),
        (Product.FAILED, [on_tests.failed_tests(1, 0, 0, ["t"]), MISPLACED], LATER),
        (Product.FAILED, [MISPLACED], LATER),
        (Product.FAILED, [on_tests.session_unfinished(12)], LATER),
        (Product.FAILED, [Evidence(grade=Grade.FACT, text="an old result")], LATER),
        (Product.FAILED, [], LATER),
        (Product.INCOMPLETE, [on_tests.skipped_tests(1, ["no device"])], LATER),
    ],
)
def test_a_run_that_proves_nothing_does_not_count(
    results: Path,
    published: RunResult,
    product: Product,
    evidence: list[Evidence],
    expected: str,
) -> None:
    """A pass on the CPU would be claimed for the device, and a suite that was cut would shrink."""
    verdict = Verdict(product=product, harness=Harness.CLEAN, evidence=tuple(evidence))
    nvidia = published.platforms[0].model_copy(update={"verdict": verdict})
    newest = {
        "run_id": "20280101T120000Z-nogit-0000",
        "platforms": (nvidia,),
        "started_at": published.started_at.replace(year=2028),
    }
    with Store(default_url(results)) as store:
        store.save(published.model_copy(update=newest), {"nvidia": Details(tests=NVIDIA)})
    assert exported(results, "capabilities") == ExitCode.PASSED
    assert document(results).platforms[0].run_id == expected


def test_torch_s_tests_get_what_its_backend_passes(results: Path) -> None:
    exported(results, "capabilities")
    nvidia, iluvatar = document(results).platforms
    assert nvidia.op_allowlist == iluvatar.op_allowlist == ("add",)
    found = [(it.dtypes, it.reason) for it in nvidia.op_overrides["add"]]
    # No sample says nothing about the device.
    assert found == [(("bool",), "failed"), (("int8",), "no kernel on this device")]
    assert iluvatar.op_overrides == {}


def test_the_file_is_of_its_form_and_of_ascii(results: Path) -> None:
    exported(results, "capabilities")
    text = (results / "out" / "capabilities.json").read_text()
    assert text.isascii()
    assert json.loads(text)["schema_version"] == 1


@pytest.mark.parametrize(
    ("options", "platforms"),
    [
        (("--platform", "iluvatar"), ["iluvatar"]),
        (("--run", LATER), ["nvidia"]),
        (("--since", "2027-01-01"), ["nvidia"]),
    ],
)
def test_a_part_of_it(results: Path, options: tuple[str, ...], platforms: list[str]) -> None:
    assert exported(results, "capabilities", *options) == ExitCode.PASSED
    assert [it.platform for it in document(results).platforms] == platforms


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "csv", "--contract", "x"), "--contract: got --format csv"),
        (("--table", "runs"), "--table: got --format capabilities"),
        (("--run", LATER, "--platform", "iluvatar"), "no selected run has complete operator tests"),
        (("--since", "2028-01-01"), "no run matches"),
        (("--contract", "none.yaml"), "none.yaml"),
        (("--contract", str(CONTRACTS / "ascend.yaml"), "--run", LATER), "--contract: got --run"),
        (("--contract", str(CONTRACTS / "ascend.yaml"), "--platform", "cpu"), "no contract is of"),
    ],
)
def test_what_is_refused(
    results: Path, options: tuple[str, ...], message: str, capsys: Output
) -> None:
    assert exported(results, "capabilities", *options) == ExitCode.USAGE
    assert message in capsys.readouterr().err
    assert not (results / "out").exists()


def test_contracts_need_no_runs(tmp_path: Path) -> None:
    files = (str(CONTRACTS / "ascend.yaml"), str(REPOSITORY / "tests/ops/contracts/cpu.yaml"))
    contracts = (it for file in files for it in ("--contract", file))
    assert exported(tmp_path, "capabilities", *contracts) == ExitCode.PASSED
    cpu, ascend = document(tmp_path).platforms
    assert (cpu.run_id, cpu.device, ascend.device) == (None, "cpu", "npu")
    assert ascend.label == "Ascend (simulated device)"
    assert len(cpu.op_allowlist) > 1000
    assert {"add", "silu", "native_layer_norm"} <= {*ascend.op_allowlist}
    assert 0 not in ascend.slots


class Cells(HTMLParser):
    """The cells of the matrix, and the tags of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, _attrs: Any) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        self._inside = tag in ("th", "td") or (self._inside and tag not in ("tr", "thead"))
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside &= tag not in ("th", "td")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.rows[-1][-1] += data


def test_the_matrix_has_operators_by_platform(results: Path) -> None:
    assert exported(results, "support-matrix") == ExitCode.PASSED
    page = Cells((results / "out" / "support-matrix.html").read_text())
    rows = {cells[0]: cells[1:] for cells in page.rows}
    assert rows["Operator"] == ["NVIDIA", "Iluvatar"]
    assert rows["add"] == ["✓ float32 float64 slot 0, 8 ✗ bool", "✓ floating slot 8"]
    assert rows["mul"] == ["✗ float32", "·"]
    assert rows["div"] == ["\N{EN DASH} <script>alert(1)</script>�", "·"]
    assert rows["NVIDIA"][0] == "1"
    assert page.tags.count("script") == 1


def test_the_matrix_requests_nothing(results: Path) -> None:
    exported(results, "support-matrix")
    text = (results / "out" / "support-matrix.html").read_text()
    assert "default-src 'none'" in text
    assert "src=" not in text.replace("-src", "")
    assert "http" not in text.replace("http-equiv", "")
