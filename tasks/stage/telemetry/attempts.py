"""Makes spans of the agent's attempts when the stage stores their shard.

The player samples the attempts of a shard together, so a span lasts as long as its shard took. An
earlier process has sent the spans of its own attempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import polars as pl

from genenv_core.storage.records.manifest import CheckpointRef, EndpointRef, FileRef
from tasks.stage.inputs import Inputs
from tasks.stage.telemetry.spans import current

NAME = "invoke_agent pi_agent"
BATCH = 1000
"""Waits after so many spans until the SDK has sent them: it keeps 2,048 and drops more."""


def tell_attempts(
    inputs: Inputs, tables: Mapping[str, pl.DataFrame], times_ns: tuple[int, int]
) -> None:
    """Make a span of each attempt in a shard's tables; `times_ns` are when it began and ended."""
    stage = current()
    if stage.span is None or "traces" not in tables:
        return
    from tasks.stage.telemetry.sending import record, send

    traces = tables["traces"]
    if (verdicts := tables.get("benchmark_items")) is not None:
        traces = traces.join(verdicts.select("trace_id", "valid"), on="trace_id", how="left")
    common = {"genenv.run": stage.run, "gen_ai.request.model": model_of(inputs)}
    for number, row in enumerate(traces.iter_rows(named=True), start=1):
        known = {**common, **attributes_of(row)}
        record(NAME, stage.span, times_ns, {k: v for k, v in known.items() if v is not None})
        if number % BATCH == 0:
            send()


def attributes_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a span's attributes for an attempt, by the GenAI conventions where they fit.

    Of an error it takes what stands before the first colon: the rest may be words of a model.
    """
    error = str(row["error"]).partition(":")[0][:200]
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "pi_agent",
        "gen_ai.usage.input_tokens": row["prompt_tokens"],
        "gen_ai.usage.output_tokens": row["response_tokens"],
        "gen_ai.response.finish_reasons": (row["finish_reason"],),
        "genenv.epoch": row["epoch"],
        "genenv.task_id": row["task_id"],
        "genenv.trace_id": row["trace_id"],
        "genenv.group_id": row["group_id"],
        "genenv.sample_index": row["sample_index"],
        "genenv.policy_version": row["policy_version"],
        "genenv.turns": row["turns"],
        "genenv.tool_calls": row["tool_calls"],
        "genenv.success": row.get("valid"),
        "genenv.timing": "shard",
        "error.type": error or None,
    }


def model_of(inputs: Inputs) -> str | None:
    """Return the model that a stage's inputs name first: a digest of weights, or a name."""
    for field in fields(inputs):
        match getattr(inputs, field.name):
            case CheckpointRef(digest=digest):
                return digest
            case FileRef(sha256=digest):
                return digest
            case EndpointRef(model_name=name):
                return name
            case _:
                continue
    return None
