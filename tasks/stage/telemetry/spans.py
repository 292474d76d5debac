"""Opens spans around work, each within the open one of its thread.

This module keeps the open span itself, apart from OpenTelemetry's context. So Prefect's and
MLflow's own spans neither become parents of ours nor leave with them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Mapping
from contextvars import ContextVar
from typing import Any

from genenv_core.config.schema import RunConfig

Value = str | int | float | bool | None
Attributes = Mapping[str, Value]

TRACEPARENT = "TRACEPARENT"
"""Variable with the span of the process that started this one, in W3C's form."""

_ASKING = (
    "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
)


class Telling:
    """An open span, or a stand-in without one, which drops what it gets."""

    def __init__(self, span: Any = None, run: str = "") -> None:
        """Hold a span of the SDK, if any, and its run."""
        self.span = span  # half untyped; its module loads only when someone asks
        self.run = run

    def tell(self, attributes: Attributes) -> None:
        """Add attributes to the span, leaving out those that are None."""
        if self.span is not None:
            for name, value in attributes.items():
                if value is not None:
                    self.span.set_attribute(name, value)

    @property
    def traceparent(self) -> str:
        """Return the span in W3C's form, for another process; '' without a span."""
        if self.span is None:
            return ""
        known = self.span.get_span_context()
        return f"00-{known.trace_id:032x}-{known.span_id:016x}-{known.trace_flags:02x}"


NOTHING = Telling()
_open: ContextVar[Telling] = ContextVar("genenv_span", default=NOTHING)
_from_elsewhere: ContextVar[str] = ContextVar("genenv_traceparent", default="")


def asked() -> bool:
    """Return whether the environment asks for spans, by OpenTelemetry's own variables."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return exporter != "none" and any(os.environ.get(name, "").strip() for name in _ASKING)


@contextlib.contextmanager
def span(name: str, attributes: Attributes) -> Generator[Telling]:
    """Open a span around the block; an exception of the block marks it, by its type alone.

    When the outermost span ends, the SDK sends all of them.
    """
    if not asked():
        yield NOTHING
        return
    from tasks.stage.telemetry.sending import begin, send  # loads the SDK

    parent = _open.get()
    elsewhere = _from_elsewhere.get() or os.environ.get(TRACEPARENT, "")
    made = begin(name, parent.span, elsewhere)
    if made is None:
        yield NOTHING
        return
    telling = Telling(made, str(attributes.get("genenv.run") or ""))
    telling.tell(attributes)
    token = _open.set(telling)
    try:
        yield telling
    except BaseException as error:
        # Its text may repeat a model's.
        telling.tell({"error.type": type(error).__name__})
        made.set_status(_failed())
        raise
    finally:
        _open.reset(token)
        made.end()
        if parent.span is None:
            send()


def run_span(config: RunConfig) -> contextlib.AbstractContextManager[Telling]:
    """Open the span of a run that has a name."""
    about: Attributes = {
        "genenv.run": config.run_id,
        "genenv.arm": config.arm.value,
        "genenv.domain": config.domain.name,
        "genenv.seed": config.seed,
        "genenv.epochs": config.epochs,
    }
    return span("run", about)


def epoch_span(config: RunConfig, epoch: int) -> contextlib.AbstractContextManager[Telling]:
    """Open the span of an epoch; 0 is the start of a run."""
    return span("epoch", {"genenv.run": config.run_id, "genenv.epoch": epoch})


def stage_span(
    run_id: str, stage: str, epoch: int, key: str
) -> contextlib.AbstractContextManager[Telling]:
    """Open the span of a stage; the caller adds later how it came out."""
    about: Attributes = {
        "genenv.run": run_id,
        "genenv.epoch": epoch,
        "genenv.stage": stage,
        "genenv.key": key,
    }
    return span(f"stage {stage}", about)


@contextlib.contextmanager
def continued(traceparent: str) -> Generator[None]:
    """Open the spans of the block within a span of another process."""
    token = _from_elsewhere.set(traceparent)
    try:
        yield
    finally:
        _from_elsewhere.reset(token)


def current() -> Telling:
    """Return the open span of this thread."""
    return _open.get()


def _failed() -> Any:
    from opentelemetry.trace import Status, StatusCode

    return Status(StatusCode.ERROR)
