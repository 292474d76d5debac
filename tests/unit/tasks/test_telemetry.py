"""Spans for OpenTelemetry.

Invariants: without its variables nothing is opened and nothing sent (`test_layers` sees that
nothing is loaded); a span is within the one that is open, in threads and in other processes too; a
stage's span says how it came out; an attempt's has its numbers and no word of a model; whatever is
wrong with exporters or collectors, the block goes on and people hear of it once; no key and no seed
knows of it.
"""

from __future__ import annotations

import contextvars
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import StatusCode

from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import STAGES
from genenv_core.errors import StageError
from genenv_core.storage.records import code
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef, EndpointRef, FileRef
from tasks.placement.child import ChildRun
from tasks.stage import Stage, StageContext
from tasks.stage.execution import run_stage
from tasks.stage.progress import Event, listening
from tasks.stage.telemetry import attempts, sending
from tasks.stage.telemetry.attempts import model_of, tell_attempts
from tasks.stage.telemetry.spans import (
    NOTHING,
    asked,
    continued,
    current,
    run_span,
    span,
    stage_span,
)
from tests.mutations import mutation
from tests.unit.builders_spans import VARIABLES, kept, parents
from tests.unit.builders_stage import NO_INPUTS
from tests.unit.builders_tables import sample_frame

SENDING = "tasks/stage/telemetry/sending.py"
SPANS = "tasks/stage/telemetry/spans.py"

STAGE = Stage("score", ("tasks.score",), ())
SECRET = "what the model said"


def configured(root: Path, run_id: str = "x") -> RunConfig:
    return resolve("tiny", fields={"root": str(root), "run_id": run_id})


def nothing(context: StageContext[Any]) -> dict[str, Any]:
    return {}


@mutation(
    "spans are sent although nobody asked", SPANS,
    'exporter != "none" and any(', 'exporter != "none" or any(',
)  # fmt: skip
@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_TRACES_EXPORTER": " "}, False),
    ],
)
def test_the_usual_variables_ask_for_spans(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], wanted: bool
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert asked() is wanted


def test_without_them_the_sdk_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept(monkeypatch) as found:
        monkeypatch.delenv("OTEL_TRACES_EXPORTER")
        with run_span(configured(tmp_path)) as told:
            told.tell({"a": 1})
            assert current() is NOTHING and told.traceparent == ""
            tell_attempts(Inputs(None), {"traces": sample_frame("traces", 1)}, (1, 2))
        run_stage(STAGE, nothing, configured(tmp_path), 1, NO_INPUTS)
        assert sending._opened == [] and found.get_finished_spans() == ()


def test_a_stage_is_in_its_run_and_says_how_it_came_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(tmp_path)
    with kept(monkeypatch) as found:
        with run_span(config):
            computed = run_stage(STAGE, nothing, config, 1, NO_INPUTS)
            # As Prefect starts a stage in a thread of its own.
            contextvars.copy_context().run(run_stage, STAGE, nothing, config, 1, NO_INPUTS)
        spans = found.get_finished_spans()
    assert parents(spans) == [("stage score", "run"), ("stage score", "run"), ("run", "")]
    first, second, whole = (dict(one.attributes or {}) for one in spans)
    assert first["genenv.state"] == "computed" and second["genenv.state"] == "cached"
    assert first["genenv.key"] == second["genenv.key"] == computed.ref.key
    assert first["genenv.rows"] == 0 and first["genenv.epoch"] == 1
    assert whole["genenv.run"] == "x" and whole["genenv.domain"] == "desk"


def test_a_key_does_not_know_of_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run_stage(STAGE, nothing, configured(tmp_path / "a"), 1, NO_INPUTS)
    with kept(monkeypatch):
        told = run_stage(STAGE, nothing, configured(tmp_path / "b"), 1, NO_INPUTS)
    assert told.ref == plain.ref
    counted = code.counted(*(f"tasks.{name}" for name in STAGES))
    assert "tasks.rollout" in counted
    assert not any(name.startswith("tasks.stage.telemetry") for name in counted)


def test_a_stage_computed_by_another_run_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_stage(STAGE, nothing, configured(tmp_path, "before"), 1, NO_INPUTS)
    with kept(monkeypatch) as found:
        run_stage(STAGE, nothing, configured(tmp_path, "after"), 1, NO_INPUTS)
        sending.send()
        (one,) = found.get_finished_spans()
    assert dict(one.attributes or {})["genenv.computed_by"] == "before"


@mutation(
    "a failed span holds the error's text", SPANS,
    '{"error.type": type(error).__name__}', '{"error.type": str(error)}',
)  # fmt: skip
def test_a_failure_marks_the_span_by_its_type_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(context: StageContext[Any]) -> dict[str, Any]:
        raise ValueError(SECRET)

    with kept(monkeypatch) as found:
        with pytest.raises(StageError, match=SECRET):
            run_stage(STAGE, broken, configured(tmp_path), 1, NO_INPUTS)
        (one,) = found.get_finished_spans()
    assert one.status.status_code is StatusCode.ERROR
    assert dict(one.attributes or {})["error.type"] == "StageError"
    assert SECRET not in one.to_json()


@mutation(
    "a stage on a work pool begins a trace of its own", SPANS,
    "elsewhere = _from_elsewhere.get() or", 'elsewhere = "" or',
)  # fmt: skip
def test_a_span_goes_on_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(tmp_path)
    with kept(monkeypatch) as found:
        with stage_span("x", "score", 1, "key") as here:
            sent = ChildRun(None, "score", config, 1, "cpu", "key")._parameters(NO_INPUTS, {})  # type: ignore[arg-type]
            assert sent["traceparent"] == here.traceparent
            assert here.traceparent.startswith("00-")
        # There, no span is open yet.
        with continued(sent["traceparent"]), stage_span("x", "score", 1, "key"):
            pass
        assert parents(found.get_finished_spans())[1] == ("stage score", "stage score")
        outside = f"00-{7:032x}-{9:016x}-01"
        monkeypatch.setenv("TRACEPARENT", outside)
        with run_span(config):
            pass
        whole = found.get_finished_spans()[-1]
        assert whole.parent and (whole.parent.trace_id, whole.parent.span_id) == (7, 9)
    monkeypatch.delenv("OTEL_TRACES_EXPORTER")
    plain = ChildRun(None, "score", config, 1, "cpu", "key")._parameters(NO_INPUTS, {})  # type: ignore[arg-type]
    assert "traceparent" not in plain


@mutation(
    "a span holds what a model said", "tasks/stage/telemetry/attempts.py",
    'str(row["error"]).partition(":")[0][:200]', 'str(row["error"])',
)  # fmt: skip
def test_an_attempt_has_its_numbers_and_no_word_of_a_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traces = sample_frame("traces", 3).with_columns(
        error=pl.Series(["", f"its tools failed: {SECRET}", ""])
    )
    payload = sample_frame("trace_tokens", 3).with_columns(response_text=pl.lit(SECRET))
    items = sample_frame("benchmark_items", 1).with_columns(
        trace_id=pl.lit(traces["trace_id"][0]), valid=pl.lit(True), reason=pl.lit(SECRET)
    )
    tables = {"traces": traces, "trace_tokens": payload, "benchmark_items": items}
    inputs = Inputs(EndpointRef("http://x", "some-model", {}))
    monkeypatch.setattr(attempts, "BATCH", 2)
    with kept(monkeypatch) as found:
        with stage_span("x", "benchmark", 0, "key"):
            tell_attempts(inputs, tables, (1_000, 3_000))
        *spans, stage = found.get_finished_spans()
    assert parents((*spans, stage))[:3] == [("invoke_agent pi_agent", "stage benchmark")] * 3
    assert [one.end_time - one.start_time for one in spans] == [2_000] * 3  # type: ignore[operator]
    told = [dict(one.attributes or {}) for one in spans]
    assert [one["genenv.trace_id"] for one in told] == traces["trace_id"].to_list()
    assert told[0]["gen_ai.request.model"] == "some-model" and told[0]["genenv.run"] == "x"
    assert told[0]["genenv.success"] is True and "genenv.success" not in told[1]
    assert told[1]["error.type"] == "its tools failed" and "error.type" not in told[0]
    for name, column in (("input", "prompt_tokens"), ("output", "response_tokens")):
        assert [one[f"gen_ai.usage.{name}_tokens"] for one in told] == traces[column].to_list()
    assert not any(SECRET in one.to_json() for one in spans)


@dataclass(frozen=True)
class Inputs:
    """The inputs of a stage that samples from a model."""

    model: Any
    other: Any = None


def test_the_model_is_the_first_of_the_inputs() -> None:
    artifact = ArtifactRef(stage="bootstrap", key="k", digest="d")
    weights = CheckpointRef(artifact=artifact, name="agent", digest="abc", policy_version=0)
    assert model_of(Inputs(artifact, weights)) == "abc"
    assert model_of(Inputs(FileRef(path="/x", sha256="def"), weights)) == "def"
    assert model_of(Inputs(None, None)) is None


def told_of(block: Any) -> list[str]:
    """Return what people hear while a block is carried out."""
    heard: list[Event] = []
    with listening(heard.append):
        block()
    return [one.message for one in heard if one.kind == "tracking"]


def test_a_missing_exporter_is_named_once_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice() -> None:
        for _ in range(2):
            with run_span(configured(tmp_path)) as told:
                assert told is NOTHING

    for protocol, package in (("http/protobuf", "proto-http=="), ("grpc", "proto-grpc==")):
        with kept(monkeypatch, OTEL_EXPORTER_OTLP_PROTOCOL=protocol):
            monkeypatch.setattr(sending, "entry_points", lambda group, name: [])
            (heard,) = told_of(twice)
        assert "which is missing: pip install opentelemetry-exporter-otlp-" + package in heard
    with kept(monkeypatch, OTEL_TRACES_EXPORTER="nobodys"):
        monkeypatch.setattr(sending, "entry_points", lambda group, name: [])
        (heard,) = told_of(twice)
    assert "exporter nobodys, which is missing" in heard


class Away(SpanExporter):
    """An exporter whose collector is away; it counts how often it was tried."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.tries = error, 0

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        self.tries += 1
        if self.error:
            raise self.error
        return SpanExportResult.FAILURE


@mutation(
    "a collector that is away is waited for again and again", SENDING,
    "if time.monotonic() < self._until:", "if False:",
)  # fmt: skip
@pytest.mark.parametrize("error", [None, OSError("nobody\nlistens")])
def test_a_collector_that_is_away_is_tried_once_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    away = Away(error)

    def twice() -> None:
        for _ in range(2):
            with run_span(configured(tmp_path)):
                pass

    with kept(monkeypatch, away):
        (heard,) = told_of(twice)
    assert away.tries == 1
    assert "the run goes on without them" in heard and "\n" not in heard


def test_a_value_that_the_sdk_refuses_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once() -> None:
        with run_span(configured(tmp_path)) as told:
            assert told is NOTHING

    with kept(monkeypatch, OTEL_BSP_MAX_QUEUE_SIZE="-1"):
        (heard,) = told_of(once)
    assert heard.startswith("telemetry: no spans are sent: ")


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "genenv"),
        ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "team=a,service.name=theirs"}, "theirs"),
    ],
)
def test_the_service_is_named_as_the_variables_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], name: str
) -> None:
    with kept(monkeypatch, **variables) as found:
        with run_span(configured(tmp_path)):
            pass
        (one,) = found.get_finished_spans()
    assert one.resource.attributes["service.name"] == name
    assert one.resource.attributes.get("team") == ("a" if "team" in str(variables) else None)


@mutation("ids of spans are drawn from the seed of a run", SENDING, ", id_generator=Ids()", "")
def test_spans_draw_nothing_from_pythons_random_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random.seed(0)
    before = random.getstate()
    with kept(monkeypatch), run_span(configured(tmp_path)):
        pass
    assert random.getstate() == before


def test_a_thread_without_a_span_is_at_the_top(monkeypatch: pytest.MonkeyPatch) -> None:
    with kept(monkeypatch) as found:
        with span("a", {}) as first:
            assert current() is first
            contextvars.Context().run(lambda: run_in_own(found))
        assert current() is NOTHING
    assert parents(found.get_finished_spans()) == [("b", ""), ("a", "")]


def run_in_own(found: Any) -> None:
    with span("b", {}):
        pass
