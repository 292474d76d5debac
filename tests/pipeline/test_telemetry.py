"""Spans of a real run, also sent over OTLP to a collector.

Invariants: every stage is in its epoch and every epoch in the run, in whatever thread Prefect runs
them; each attempt that was made has a span, none twice; a run that is reused has the stages and no
attempt; Prefect's own spans are not among them; a collector gets all of it over HTTP, from stages
on work pools too.
"""

from __future__ import annotations

import gzip
import os
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tasks.stage.telemetry import sending
from tests.pipeline.builders import run, sql, tiny
from tests.pipeline.workers import REPOSITORY, environment, worker
from tests.unit.builders_spans import VARIABLES, kept, parents

pytestmark = pytest.mark.slow
ATTEMPT = "invoke_agent pi_agent"


def test_every_stage_is_in_its_epoch_and_every_attempt_has_a_span(
    api: None, tiny_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(tiny_root, "rollout.top_p=0.99", epochs=1, run_id="told")
    with kept(monkeypatch) as found:
        run(config)
        first = found.get_finished_spans()
        found.clear()
        run(config)
        again = found.get_finished_spans()
    assert {parent for name, parent in parents(first) if name.startswith("stage ")} == {"epoch"}
    assert {parent for name, parent in parents(first) if name == "epoch"} == {"run"}
    assert {parent for name, parent in parents(first) if name == ATTEMPT} == {"stage rollout"}
    assert {one.name.split()[0] for one in first} == {"run", "epoch", "stage", "invoke_agent"}
    assert len({one.context.trace_id for one in first}) == 1
    told = [dict(one.attributes or {}) for one in first if one.name == ATTEMPT]
    traces = sql(config, "SELECT trace_id, response_tokens FROM traces ORDER BY 1")
    numbers = {one["genenv.trace_id"]: one["gen_ai.usage.output_tokens"] for one in told}
    assert len(told) == len(numbers) == traces.height > 0
    assert numbers == dict(traces.iter_rows())
    stages = sql(config, "SELECT stage, tokens FROM stage_runs WHERE epoch = 1 AND tokens > 0")
    spans = {one.name: dict(one.attributes or {}) for one in first}
    for stage, tokens in stages.iter_rows():
        assert spans[f"stage {stage}"]["genenv.tokens"] == tokens
    stages_of = [name for name, _ in parents(again) if name.startswith("stage ")]
    assert sorted(stages_of) == sorted(n for n, _ in parents(first) if n.startswith("stage "))
    assert ATTEMPT not in {one.name for one in again}


class Collector(ThreadingHTTPServer):
    """Takes spans as a collector does, on this machine."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.taken: list[Any] = []
        self.service = ""


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.path == "/v1/traces" and isinstance(self.server, Collector)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {one.key: one.value.string_value for one in resource.resource.attributes}
            self.server.service = names["service.name"]
            for scope in resource.scope_spans:
                self.server.taken += scope.spans
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def collecting() -> Generator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Yield a collector that the environment names."""
    if not entry_points(group="opentelemetry_traces_exporter", name="otlp_proto_http"):
        pytest.skip("no exporter here: `make otel` installs it")
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with collecting() as server:
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "trainer")
        sending.close()
        yield server
        sending.close()


def test_a_collector_gets_the_spans_over_http(
    api: None, tiny_root: Path, collector: Collector
) -> None:
    config = tiny(tiny_root, "rollout.top_p=0.98", epochs=1, run_id="sent")
    run(config)
    assert collector.service == "trainer"
    names = [one.name for one in collector.taken]
    assert names.count("run") == 1 and names.count("epoch") == 2
    assert names.count(ATTEMPT) == sql(config, "SELECT count(*) AS n FROM traces")["n"][0]
    whole = next(one for one in collector.taken if one.name == "run")
    assert {one.parent_span_id for one in collector.taken if one.name == "epoch"} == {whole.span_id}


def test_a_stage_on_a_work_pool_goes_on_in_the_trace_of_its_run(
    api: None, tiny_root: Path, tmp_path: Path, collector: Collector
) -> None:
    from flows.deploy.stage_on_pool import make_work_pool

    make_work_pool("told", kind="process", stages=("rollout",))
    places = ("placement.rollout=told", "placement.poll_seconds=0.3")
    config = tiny(tiny_root, *places, "rollout.top_p=0.97", epochs=1, run_id="placed-told")
    # The worker's processes find the exporter where this one does.
    variables = {**environment(), "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])}
    with worker("told", tmp_path / "log", variables=variables):
        run(config)
    assert len({one.trace_id for one in collector.taken}) == 1
    rollouts = [one for one in collector.taken if one.name == "stage rollout"]
    by_id = {one.span_id: one for one in rollouts}
    there = next(one for one in rollouts if one.parent_span_id in by_id)
    here = by_id[there.parent_span_id]
    assert {one.key: one.value.string_value for one in here.attributes}[
        "genenv.work_pool"
    ] == "told"
    made = [one for one in collector.taken if one.name == ATTEMPT]
    assert {one.parent_span_id for one in made} == {there.span_id}
    assert len(made) == sql(config, "SELECT count(*) AS n FROM traces")["n"][0]
