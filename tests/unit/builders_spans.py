"""Spans that are kept in memory, by the way that any exporter takes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tasks.stage.telemetry import sending

VARIABLES = (
    "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_SDK_DISABLED",
    "OTEL_SERVICE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
    "TRACEPARENT",
)


class Entry:
    """An entry point that gives one exporter."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def load(self) -> Callable[[], Any]:
        return lambda: self._made


@contextmanager
def kept(
    patch: pytest.MonkeyPatch, exporter: Any = None, **variables: str
) -> Generator[InMemorySpanExporter]:
    """Let the environment ask for spans, and yield what gets them; opened and closed anew."""
    made = exporter or InMemorySpanExporter()
    for name in VARIABLES:
        patch.delenv(name, raising=False)
    patch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    for name, value in variables.items():
        patch.setenv(name, value)
    patch.setattr(sending, "entry_points", lambda group, name: [Entry(made)])
    sending.close()
    try:
        yield made
    finally:
        sending.close()


def parents(spans: tuple[ReadableSpan, ...]) -> list[tuple[str, str]]:
    """Return the name of each span and of the one that it is in, '' for none."""
    names = {one.context.span_id: one.name for one in spans}
    return [(one.name, names.get(one.parent.span_id, "?") if one.parent else "") for one in spans]
