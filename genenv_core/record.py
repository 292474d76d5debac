"""Frozen records: typed, unchangeable data without unknown fields."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Base of the records that processes and files hand on."""

    model_config = ConfigDict(frozen=True, extra="forbid")
