"""The report of a decision: a terminal of 80 columns, a page and the file."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, date, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ci.gates.regression import Judgement
from ci.gates.release import decide
from ci.gates.release_facts import BaselineFacts, CostRise, PlatformFacts, ReleaseFacts
from ci.model.decision import DecidedRun, Decision, decision_schema, parse_decision
from ci.model.release import ReleasePolicy, ReleaseRule, Waiver, policy_digest
from ci.model.results import Distribution, RunResult
from ci.report.decision_report import DecisionReport

GOLDEN = Path(__file__).parents[1] / "data" / "decision-80.txt"
NOW = datetime(2026, 1, 3, 12, tzinfo=UTC)
POLICY = ReleasePolicy(
    required=("nvidia", "cambricon"),
    informational=("moore", "ascend"),
    least_executed=0.5,
    oldest_days=1.0,
    build_cost_percent=10.0,
)
WAIVERS = (
    Waiver(
        rule=ReleaseRule.EXECUTED,
        platform="cambricon",
        reason="The driver of this quarter lacks float64; reported to the vendor as case 17",
        owner="@lab",
        until=date(2026, 3, 31),
    ),
    Waiver(
        rule=ReleaseRule.AGE,
        platform="nvidia",
        reason="The machine moves",
        owner="@lab",
        until=date(2026, 1, 1),
    ),
)
WHEEL = Distribution(
    name="infini_ops-1.2-cp311-cp311-linux_x86_64.whl",
    sha256="0" * 64,
    size_bytes=3,
    installed=True,
)


@pytest.fixture
def decision(published: RunResult) -> Decision:
    """Two days after the published release: without a wheel on Ascend, and a slower build."""
    platforms = {
        it.platform: PlatformFacts(
            run=published,
            result=it.model_copy(update={"distributions": (WHEEL,) * (it.platform != "ascend")}),
            baseline=BaselineFacts(
                run_id="20251201T120000Z-89abcdef-00ff",
                build=CostRise(
                    text="CPU seconds of install +420 CPU-s (+16 %)",
                    relative=0.16 if it.platform == "nvidia" else 0.0,
                    judgement=Judgement.SUSPECTED,
                ),
            ),
            skips=None,
        )
        for it in published.platforms
        if it.platform in POLICY.platforms[:2] + POLICY.platforms[3:]
    }
    run = DecidedRun(run_id=published.run_id, sha256="a" * 64, platforms=tuple(platforms))
    facts = ReleaseFacts(
        project="infini-ops", tag="v1.2", tag_commit=None, platforms=platforms, runs=(run,)
    )
    return decide(facts, POLICY, WAIVERS, NOW)


def test_a_terminal_of_80_columns(decision: Decision) -> None:
    console = Console(file=StringIO(), width=80)
    DecisionReport(decision=decision).print(console)
    assert isinstance(console.file, StringIO)
    text = "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())
    assert max(map(len, text.splitlines())) <= 80
    assert text == GOLDEN.read_text(encoding="utf-8")  # to update it: write `text` there


def test_a_page_begins_with_the_verdict(decision: Decision) -> None:
    page = DecisionReport(decision=decision).markdown()
    lines = page.splitlines()
    assert lines[0] == "# infini-ops v1.2: no-go"
    assert lines[4] == "release v1.2: **no-go**, 4 rules failed, 1 rule waived"
    assert "* waived: cambricon: executed: " in page
    assert "until 2026-03-31" in page
    assert "| result | passed | passed in run" in page


def test_the_file_is_read_back(decision: Decision) -> None:
    text = DecisionReport(decision=decision).json()
    assert parse_decision(text.encode()) == decision
    assert json.loads(text) == DecisionReport(decision=decision).data()
    fields = json.loads(decision_schema())["properties"]
    assert set(json.loads(text)) == set(fields)
    assert all(it.get("description") for it in fields.values())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"schema_version": 4}, "schema_version: got 4, expected 1 to 3"),
        ({"schema_version": None}, "schema_version: got None"),
        ({"verdict": "go"}, "verdict: expected 'go' and exit code 0 exactly if no rule failed"),
        ({"exit_code": 0}, "verdict: expected 'go' and exit code 0 exactly if no rule failed"),
        ({"rules": []}, "rules: Tuple should have at least 1 item"),
        ({"policy_sha256": "x"}, "policy_sha256: String should match pattern"),
        ({"policy": None}, "policy: expected what was demanded"),
        ({"policy_sha256": "a" * 64}, "policy: it has another SHA-256 than policy_sha256"),
        ({"waivers": []}, "executed of cambricon is waived, and there is no such waiver"),
        ({"more": 1}, "more: Extra inputs are not permitted"),
        ({"decided_at": "2026-01-01T00:00:00"}, "decided_at: got a time without a zone"),
    ],
)
def test_a_file_that_is_no_decision(decision: Decision, changes: dict[str, Any], text: str) -> None:
    document = json.loads(decision.to_json()) | changes
    with pytest.raises(ValueError, match=text.replace("(", r"\(")):
        parse_decision(json.dumps(document).encode())


def forged(decision: Decision, **policy: Any) -> dict[str, Any]:
    """A decision with another policy, whose digest is right."""
    document: dict[str, Any] = json.loads(decision.to_json())
    document["policy"] |= policy
    other = ReleasePolicy.model_validate_json(json.dumps(document["policy"]))
    return document | {"policy_sha256": policy_digest(other, WAIVERS)}


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"required": ["nvidia"]}, "age of cambricon is failed, and the platform is not required"),
        ({"required": ["ascend"]}, "age of ascend is informational, and the platform is required"),
        ({"required": ["moore"]}, "result of moore is informational, and the platform is required"),
        ({"required": ["iluvatar"]}, "result of iluvatar was not judged"),
        ({"informational": ["iluvatar"]}, "result of iluvatar was not judged"),
        ({"skips": ["*"]}, "skips of nvidia was not judged"),
        ({"unexecuted_pairs": 0}, "capabilities of the release was not judged"),
    ],
)
def test_a_decision_that_contradicts_what_was_demanded(
    decision: Decision, policy: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=f"^policy: .*{text}"):
        parse_decision(json.dumps(forged(decision, **policy)).encode())


def test_what_was_demanded_is_recorded(decision: Decision) -> None:
    document = json.loads(decision.to_json())
    assert document["policy"]["required"] == ["nvidia", "cambricon"]
    assert document["policy"]["informational"] == ["moore", "ascend"]
    assert document["policy"]["build_cost_percent"] == 10.0
    assert [it["owner"] for it in document["waivers"]] == ["@lab", "@lab"]


def test_older_decisions_are_read(decision: Decision, monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.loads(decision.to_json())
    first = {**document, "schema_version": 1}
    del first["policy"], first["waivers"]
    assert parse_decision(json.dumps(first).encode()).policy is None
    # The next version has one more key of `release:` than this one.
    monkeypatch.setattr("ci.model.decision.DECISION_VERSION", 4)
    del document["policy"]["benchmark_percent"]
    own = {"release": document["policy"], "waivers": document["waivers"]}
    text = json.dumps(own, sort_keys=True, separators=(",", ":"))
    document["policy_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    read = parse_decision(json.dumps(document).encode())
    assert read.policy == POLICY
    monkeypatch.undo()
    with pytest.raises(ValueError, match="another SHA-256"):
        parse_decision(json.dumps(document).encode())


def test_a_hostile_file(decision: Decision) -> None:
    for content in (b"", b"[]", b"\xff", b"[" * 100_000, b"x" * (1 << 23)):
        with pytest.raises(ValueError, match=r"got|expected|JSON|utf-8|deep|line"):
            parse_decision(content)
    waived = json.loads(decision.to_json())
    waived["rules"][0]["waiver"] = {"reason": "x", "owner": "y", "until": "2026-01-01"}
    with pytest.raises(ValueError, match="waiver: expected one for a waived rule"):
        parse_decision(json.dumps(waived).encode())
