"""Makes the flows that people see in Prefect, whose flow runs have the names of their runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from prefect import Flow, flow

from tasks.placement.parents import cancel_children

P = ParamSpec("P")
R = TypeVar("R")


def run_flow(name: str) -> Callable[[Callable[P, R]], Flow[P, R]]:
    """Return a decorator that makes a flow `name` of a function with a first parameter `config`."""
    return flow(
        name=name,
        flow_run_name="{config.run_id}",
        persist_result=False,
        on_cancellation=[cancel_children],
    )
