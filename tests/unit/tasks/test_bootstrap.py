"""The two warm starts of the stage `bootstrap`.

Invariants: they run side by side, or take turns where `execution.updates_at_once` is 1; either way
both checkpoints are written, and the facts say what each reached.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from genenv_core.config.load import resolve
from genenv_core.config.stages import WARM_STARTS
from genenv_core.domains.registry import get_domain
from genenv_core.exchange.external import Given
from genenv_core.training.warm_start.request import WarmStartRequest, WarmStartResult
from genenv_core.types import Policy
from tasks import bootstrap
from tests.mutations import mutation
from tests.waiting import BOUND_S

TURN_S = 0.3
"""How long a warm start looks for another one that should not be there."""


class Starts:
    """A trainer whose warm starts wait for each other, and count those that run at once."""

    def __init__(self, patience_s: float) -> None:
        self.asked, self.running, self.most = list[Policy](), 0, 0
        self._patience_s, self._news = patience_s, threading.Condition()

    def warm_start(self, request: WarmStartRequest) -> WarmStartResult:
        with self._news:
            self.asked.append(request.policy)
            self.running += 1
            self.most = max(self.most, self.running)
            self._news.notify_all()
            self._news.wait_for(lambda: self.most == len(Policy), self._patience_s)
            self.running -= 1
        return WarmStartResult(
            policy=request.policy, checkpoint=request.output, steps=3, metrics={}, cpu_s=0.0
        )


@mutation(
    "warm starts that are to take turns run side by side", "tasks/bootstrap.py",
    "ThreadPoolExecutor(context.execution.updates_at_once)", "ThreadPoolExecutor(len(Policy))",
    by="[1]",
)  # fmt: skip
@pytest.mark.parametrize("at_once", [1, 2])
def test_warm_starts_take_turns_where_the_configuration_says_so(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"root": str(tmp_path), "run_id": "x"}
    config = resolve("tiny", overrides=[f"execution.updates_at_once={at_once}"], fields=fields)
    starts = Starts(TURN_S if at_once == 1 else BOUND_S)
    monkeypatch.setattr(bootstrap, "trainer", lambda: starts)
    written: dict[Policy, Path] = {}
    context: Any = SimpleNamespace(
        config=config,
        execution=config.execution,
        inputs=Given(None, None, None),
        domain=lambda: get_domain(config.domain.name, config.domain.options),
        seed=0,
        scope="0123456789",
        work=tmp_path,
        out=SimpleNamespace(table=lambda *_: None, checkpoint=written.__setitem__),
        progress=lambda *_, **__: None,
    )
    facts = bootstrap.compute(context)
    assert starts.most == at_once
    assert sorted(starts.asked) == sorted(written) == sorted(Policy)
    assert set(facts[WARM_STARTS]) == set(Policy)
