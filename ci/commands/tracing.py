"""The trace of a run, for a collector of OpenTelemetry that the environment names.

A fault is one complaint, and never changes an exit code.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from ci import __version__
from ci.report.trace import SKIP, SUCCESS, TraceSpan, trace_of_run
from ci.util.invocation import INSTALLED_NAME
from ci.util.terminal import complain
from ci.util.text import first_line

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

    from ci.model.results import RunResult

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
DISABLED = "OTEL_SDK_DISABLED"
INSTALL = (
    "install it: pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http (the"
    " dependency group `otel` of pyproject.toml)"
)


def publish_trace(run: RunResult, environ: Mapping[str, str]) -> None:
    """Send the trace of a run to the endpoint that the environment names, if any."""
    is_disabled = environ.get(DISABLED, "").lower() == "true"
    if is_disabled or not any(environ.get(name) for name in ENDPOINTS):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        complain(f"warning: no trace was sent: OpenTelemetry is not installed; {INSTALL}")
        return
    try:
        send_trace(run, OTLPSpanExporter(), environ)
    except Exception as error:  # whatever it is: a run ends as its results say
        complain(f"warning: no trace was sent: {first_line(str(error))}")


def send_trace(run: RunResult, exporter: SpanExporter, environ: Mapping[str, str]) -> None:
    """Export the spans of a run at once; raises any error of the exporter, as one."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    service = {"service.name": INSTALLED_NAME, "service.version": __version__}
    named = {"service.name": environ["OTEL_SERVICE_NAME"]} if "OTEL_SERVICE_NAME" in environ else {}
    provider = TracerProvider(resource=Resource.create({**service, **named}))
    memory = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    _record(provider, trace_of_run(run), environ)
    with _LogLines() as lines:  # the exporter logs why it failed
        result = exporter.export(memory.get_finished_spans())
        exporter.shutdown()
    if result is not SpanExportResult.SUCCESS:
        raise RuntimeError(lines.last or "the exporter failed")


def _record(provider: TracerProvider, root: TraceSpan, environ: Mapping[str, str]) -> None:
    """Record the spans as if they happened now; ``TRACEPARENT`` is the parent of the first."""
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    names = ("TRACEPARENT", "TRACESTATE")
    carrier = {name.lower(): environ[name] for name in names if name in environ}
    tracer = provider.get_tracer("infini_ci", __version__)

    def record(span: TraceSpan, context: Context, kind: trace.SpanKind) -> None:
        attributes = dict(span.attributes)
        if span.result not in (SUCCESS, SKIP):
            attributes["error.type"] = span.result
        recorded = tracer.start_span(
            span.name,
            context=context,
            kind=kind,
            attributes=attributes,
            start_time=_nanoseconds(span.start),
        )
        if span.result not in (SUCCESS, SKIP):
            recorded.set_status(trace.Status(trace.StatusCode.ERROR, span.result))
        inside = trace.set_span_in_context(recorded, context)
        for child in span.children:
            record(child, inside, trace.SpanKind.INTERNAL)
        # Of the seconds: a time of a datetime has microseconds.
        recorded.end(_nanoseconds(span.start) + round(span.seconds * 1e9))

    parent = TraceContextTextMapPropagator().extract(carrier, Context())
    record(root, parent, trace.SpanKind.SERVER)


def _nanoseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6) * 1000


class _LogLines(logging.Handler):
    """Keeps what OpenTelemetry logs, in place of its output."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        self._logger = logging.getLogger("opentelemetry")

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()

    def __enter__(self) -> _LogLines:
        self._logger.addHandler(self)
        self._propagates, self._logger.propagate = self._logger.propagate, False
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagates
