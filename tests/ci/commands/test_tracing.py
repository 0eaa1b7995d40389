"""The trace of a run: its spans, its parent, and a collector that fails."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from threading import Thread
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ci.commands.tracing import publish_trace, send_trace
from ci.model.results import PlatformResult, RunResult, StageResult
from ci.model.verdicts import Harness, Product
from ci.report.trace import trace_of_run
from tests.ci.made_results import made_verdict
from tests.ci.stored_history import BEGIN, result

COMMIT = "0123456789" * 4
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def stage(name: str, seconds: float | None, code: int | None = 0, **more: Any) -> StageResult:
    fields = {"name": name, "seconds": seconds, "exit_code": code, "in_total": name != "image"}
    return StageResult(**{**fields, **more})


def made_run(*rows: PlatformResult) -> RunResult:
    stages = (stage("image", 4.25), stage("install", 100.5), stage("pytest", 50.125, 1))
    failed = made_verdict(Product.FAILED)
    usual = result(100.5, stages=stages, verdict=failed)
    usual = usual.model_copy(update={"pytest_s": 50.125, "total_s": 150.625})
    return RunResult(
        run_id="run-1",
        project="tiny",
        commit=COMMIT,
        dirty=False,
        started_at=BEGIN,
        finished_at=BEGIN + timedelta(minutes=3),
        engine="host",
        platforms=rows or (usual,),
    )


def exported(run: RunResult, environ: Mapping[str, str] = {}) -> dict[str, Any]:
    exporter = InMemorySpanExporter()
    send_trace(run, exporter, environ)
    return {span.name: span for span in exporter.get_finished_spans()}


def seconds(span: Any) -> float:
    return float(span.end_time - span.start_time) / 1e9


def test_durations_add_up_to_those_of_the_table() -> None:
    run = made_run()
    [row] = run.platforms
    spans = exported(run)
    assert [*spans] == ["image", "install", "pytest", row.label, "RUN tiny"]
    in_total = [it for it in spans.values() if it.attributes.get("infini_ci.in_total")]
    assert sum(map(seconds, in_total)) == row.total_s == 150.625
    assert seconds(spans[row.label]) == 154.875  # with the image
    assert seconds(spans["RUN tiny"]) == 180
    places = [spans[name] for name in ("image", "install", "pytest")]
    assert all(one.end_time == two.start_time for one, two in pairwise(places))
    assert all(it.parent.span_id == spans[row.label].context.span_id for it in places)
    assert spans[row.label].parent.span_id == spans["RUN tiny"].context.span_id


def test_the_conventions() -> None:
    spans = exported(made_run(), {"OTEL_SERVICE_NAME": "nightly"})
    root, test = spans["RUN tiny"], spans["pytest"]
    assert root.parent is None
    assert root.kind.name == "SERVER"
    assert root.resource.attributes["service.name"] == "nightly"
    expected = {
        "cicd.pipeline.name": "tiny",
        "cicd.pipeline.run.id": "run-1",
        "cicd.pipeline.result": "failure",
        "error.type": "failure",
        "vcs.ref.head.revision": COMMIT,
    }
    assert expected.items() <= dict(root.attributes).items()
    expected = {
        "cicd.pipeline.task.name": "pytest",
        "cicd.pipeline.task.run.id": "run-1/cpu/pytest",
        "cicd.pipeline.task.run.result": "failure",
    }
    assert expected.items() <= dict(test.attributes).items()
    assert (test.status.status_code.name, spans["install"].status.status_code.name) == (
        "ERROR",
        "UNSET",
    )


@pytest.mark.parametrize(
    ("product", "harness", "expected"),
    [
        (Product.PASSED, Harness.CLEAN, "success"),
        (Product.FAILED, Harness.CLEAN, "failure"),
        (Product.INCOMPLETE, Harness.TIMED_OUT, "timeout"),
        (Product.INCOMPLETE, Harness.LOST, "error"),
        (Product.NOT_RUN, Harness.INFRASTRUCTURE, "error"),
        (Product.NOT_RUN, Harness.CLEAN, "skip"),
    ],
)
def test_the_result_of_a_platform(product: Product, harness: Harness, expected: str) -> None:
    row = result(verdict=made_verdict(product, harness=harness), stages=(stage("a", None, None),))
    trace = trace_of_run(made_run(row))
    assert (trace.result, trace.children[0].result) == (expected, expected)
    assert trace.children[0].children == []  # the stage did not run


def test_a_job_of_a_traced_pipeline() -> None:
    root = exported(made_run(), {"TRACEPARENT": f"00-{TRACE}-{PARENT}-01"})["RUN tiny"]
    assert f"{root.context.trace_id:032x}" == TRACE
    assert f"{root.parent.span_id:016x}" == PARENT


def test_a_damaged_parent_is_none() -> None:
    assert exported(made_run(), {"TRACEPARENT": "00-what"})["RUN tiny"].parent is None


class Collector(BaseHTTPRequestHandler):
    """Refuses each trace, in a way that no repetition helps."""

    def do_POST(self) -> None:
        self.send_error(400, "no such tenant")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize("has_package", [True, False])
def test_a_collector_that_fails_is_one_complaint(
    has_package: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        if not has_package:
            module = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
            monkeypatch.setitem(sys.modules, module, None)
        publish_trace(made_run(), {"OTEL_EXPORTER_OTLP_ENDPOINT": url})
    said = capsys.readouterr().err
    assert said.startswith("warning: no trace was sent: ")
    assert ("400" in said) is has_package
    assert ("pip install opentelemetry-sdk" in said) is not has_package


@pytest.mark.parametrize(
    "environ",
    [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}],
)
def test_nothing_is_sent_unasked(
    environ: Mapping[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    publish_trace(made_run(), environ)
    assert capsys.readouterr().err == ""
