"""Frozen records: typed data that nothing changes, without unknown fields."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """What the records that processes and files hand on share."""

    model_config = ConfigDict(frozen=True, extra="forbid")
