"""Opens OpenTelemetry's SDK once a process, as its variables say.

A collector that is away costs a run only its spans: after a failure genenv stops sending for
`PAUSE_S`, and warns once. The provider is not the global one, so it sends nobody else's spans.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
import time
from collections.abc import Sequence
from importlib.metadata import entry_points, version

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tasks.stage.progress import Event, emit

log = logging.getLogger("genenv.telemetry")

PAUSE_S = 60.0
"""How long to send no spans after a failure."""

FLUSH_MS = 15_000
"""Longest wait for the sending of spans when a run ends."""

SERVICE = "genenv"
_GROUP = "opentelemetry_traces_exporter"
_PACKAGES = {
    "otlp_proto_http": "opentelemetry-exporter-otlp-proto-http",
    "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "zipkin_json": "opentelemetry-exporter-zipkin-json",
}
_lock = threading.Lock()
_opened: list[TracerProvider | None] = []


def begin(name: str, parent: Span | None, traceparent: str) -> Span | None:
    """Return a new span within `parent` or a span of another process; None without an exporter."""
    provider = _provider()
    if provider is None:
        return None
    if parent is not None:
        context = set_span_in_context(parent, Context())
    else:
        given = {"traceparent": traceparent} if traceparent else {}
        context = TraceContextTextMapPropagator().extract(given, Context())
    return provider.get_tracer(SERVICE, version(SERVICE)).start_span(name, context)


def record(
    name: str, parent: Span, times_ns: tuple[int, int], attributes: dict[str, str | int | bool]
) -> None:
    """Add a finished span, with its begin and end in nanoseconds since 1970."""
    provider = _provider()
    if provider is None:
        return
    made = provider.get_tracer(SERVICE, version(SERVICE)).start_span(
        name,
        set_span_in_context(parent, Context()),
        attributes=attributes,
        start_time=times_ns[0],
    )
    made.end(times_ns[1])


def send() -> None:
    """Wait until the SDK has sent the ended spans, at most `FLUSH_MS`."""
    provider = _provider()
    if provider is not None:
        provider.force_flush(FLUSH_MS)


def close() -> None:
    """Send the rest and open the SDK anew when the next span begins."""
    with _lock:
        for provider in _opened:
            if provider is not None:
                provider.shutdown()
        _opened.clear()


def _provider() -> TracerProvider | None:
    with _lock:
        if not _opened:
            _opened.append(_open())
        return _opened[0]


def _open() -> TracerProvider | None:
    # The SDK writes a line for each failure; they would break into the terminal.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    try:
        exporters = [_exporter(name) for name in exporter_names()]
        about = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in about
        resource = Resource.create({} if named else {"service.name": SERVICE})
        provider = TracerProvider(resource=resource, id_generator=Ids())
        for name, exporter in exporters:
            provider.add_span_processor(BatchSpanProcessor(Bounded(name, exporter)))
    except Exception as error:  # of any exporter's own, and of values that the SDK refuses
        _say(f"no spans are sent: {' '.join(str(error).split())[:300]}")
        return None
    return provider


def exporter_names() -> list[str]:
    """Return the exporters that the variables name, by their entry points; otlp by default."""
    names = os.environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    found = [name.strip() for name in names.split(",") if name.strip()]
    return [_of_protocol() if name == "otlp" else name for name in found]


def _of_protocol() -> str:
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", general)
    return "otlp_proto_grpc" if protocol.strip() == "grpc" else "otlp_proto_http"


def _exporter(name: str) -> tuple[str, SpanExporter]:
    if name == "console":  # standard output belongs to the command's own lines
        return name, ConsoleSpanExporter(out=sys.stderr)
    for found in entry_points(group=_GROUP, name=name):
        return name, found.load()()
    package = _PACKAGES.get(name)
    remedy = (
        f"pip install {package}=={version('opentelemetry-sdk')}"
        if package
        else "install the package that brings it"
    )
    raise LookupError(f"the environment asks for the exporter {name}, which is missing: {remedy}")


class Ids(IdGenerator):
    """Ids of spans from the system's randomness: the SDK's would draw from Python's own seed."""

    def __init__(self) -> None:
        """Open the source."""
        self._source = random.SystemRandom()

    def generate_span_id(self) -> int:
        """Return a new id that is not 0."""
        return self._source.randrange(1, 1 << 64)

    def generate_trace_id(self) -> int:
        """Return a new id that is not 0."""
        return self._source.randrange(1, 1 << 128)


class Bounded(SpanExporter):
    """An exporter that, after a failure, drops spans for a while instead of waiting again."""

    def __init__(self, name: str, inner: SpanExporter) -> None:
        """Send by another exporter."""
        self._name, self._inner = name, inner
        self._until, self._told = 0.0, False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; never raises."""
        if time.monotonic() < self._until:
            return SpanExportResult.FAILURE
        try:
            result, why = self._inner.export(spans), "the collector did not take them"
        except Exception as error:
            result, why = SpanExportResult.FAILURE, " ".join(str(error).split())[:300]
        if result is not SpanExportResult.SUCCESS:
            self._until = time.monotonic() + PAUSE_S
            if not self._told:
                self._told = True
                _say(f"spans are not sent by {self._name}: {why}; the run goes on without them")
        return result

    def shutdown(self) -> None:
        """Close the other exporter."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Return whether the other exporter has sent what it holds."""
        return self._inner.force_flush(timeout_millis)


def _say(text: str) -> None:
    log.warning("telemetry: %s", text)
    emit(Event("tracking", message=f"telemetry: {text}"))
