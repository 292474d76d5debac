"""Inputs of stages that take nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NoInputs:
    """The inputs of a stage that reads no other stage's output."""


NO_INPUTS = NoInputs()
