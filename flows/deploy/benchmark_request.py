"""What a person fills in to measure a model: the form of the flow `benchmark`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue
from pydantic.json_schema import SkipJsonSchema

from genenv_core.config.request import Change, RootUri, RunName, optional
from genenv_core.config.sections.section import Request
from genenv_core.plugins import BENCHMARKS, known_names


class BenchmarkRequest(Request):
    """A model to measure on a benchmark."""

    benchmark: str = Field(
        default="bfcl", json_schema_extra={"enum": list[JsonValue](known_names(BENCHMARKS))}
    )
    """What to measure it on."""
    model: str = Field(min_length=1)
    """A checkpoint directory, run:RUN or run:RUN@EPOCH of this root, models:/NAME/VERSION in
    MLflow, or the URL of an OpenAI-compatible endpoint, such as http://host:8000/v1."""
    model_name: str | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """Name of the model at that URL."""
    key_env: str | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """Environment variable of the worker with the key of that URL, never the key itself."""
    data: str | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """Folder of the benchmark's official download. Empty: its folder in GENENV_BENCHMARKS."""
    mode: str | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """How attempts are judged. Empty: the benchmark's first mode."""
    samples: int = Field(default=1, ge=1, le=1024)
    """Attempts at each item."""
    items: Annotated[int, Field(ge=1, le=1_000_000)] | SkipJsonSchema[None] = Field(
        default=None, json_schema_extra=optional
    )
    """Only the first so many items of each category. Empty: all."""
    seed: int = Field(default=0, ge=0, le=2**31 - 1)
    """Seed of everything random."""
    changes: list[Change] = Field(default=[], max_length=200)
    """Other changes, one field=value each, such as rollout.max_turns=30."""
    run_id: RunName | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """Name of the run. Empty: made from the rest, so that the same request goes on."""
    root: RootUri | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """Where everything is kept: an absolute directory. Empty: the root of `genenv up`."""
