"""A run of a comparison on a work pool, without a server: what happens while the API is away.

Invariants: an API that is away for a moment costs nothing and starts no second flow run; one that
stays away fails the run, which the error names; a cancelled comparison stays cancelled, whether or
not its run can be told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows.comparing import Launch
from flows.deploy.runs_on_pool import OnWorkPool
from genenv_core.config.comparison import PlannedRun
from genenv_core.config.load import resolve
from genenv_core.errors import GenenvError
from tasks.stage import progress
from tests.mutations import mutation

CHILD = uuid4()
AWAY = httpx.ConnectError("connection refused")


class Api:
    """A Prefect client that does what it is told, request by request; the last one repeats."""

    def __init__(self, *looks: Callable[[], State] | Exception | State) -> None:
        self.looks = list(looks)
        self.cancelled: list[UUID] = []
        self.keys: list[str] = []

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *of: object) -> None:
        pass

    def read_flow_run(self, run: UUID) -> Any:
        assert run == CHILD
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, Exception):
            raise look
        return SimpleNamespace(state=look if isinstance(look, State) else look())

    def set_flow_run_state(self, run: UUID, state: State) -> None:
        assert state.is_cancelling()
        self.cancelled.append(run)
        raise AWAY

    def run_deployment(self, name: str, *, idempotency_key: str, **more: Any) -> Any:
        self.keys.append(idempotency_key)
        if len(self.keys) == 1:
            raise httpx.ReadTimeout("no answer")
        return SimpleNamespace(id=CHILD)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Api], None]:
    """Return what plays a run with such an API."""
    monkeypatch.setattr(progress, "_cancelled", threading.Event())
    settings = ("placement.poll_seconds=0.1", "placement.lost_seconds=1")
    config = resolve("tiny", overrides=settings, fields={"root": "/root", "run_id": "mine"})

    def played(api: Api) -> None:
        monkeypatch.setattr("flows.deploy.runs_on_pool.get_client", lambda sync_client: api)
        monkeypatch.setattr("flows.deploy.runs_on_pool.run_deployment", api.run_deployment)
        launch: Launch = OnWorkPool("/root", uuid4())
        launch(PlannedRun("genenv", 0, config))

    return played


@mutation(
    "a request whose answer was lost starts a second flow run", "flows/deploy/runs_on_pool.py",
    "idempotency_key=once,", "idempotency_key=str(uuid4()),",
)  # fmt: skip
def test_an_api_that_is_away_for_a_moment_costs_nothing(play: Callable[[Api], None]) -> None:
    api = Api(AWAY, AWAY, Completed())
    play(api)
    first, again = api.keys
    assert first == again
    play(other := Api(Completed()))
    assert other.keys[0] != first  # a comparison that is continued plays the run anew
    assert not api.cancelled


@pytest.mark.slow
def test_an_api_that_stays_away_fails_the_run_by_name(play: Callable[[Api], None]) -> None:
    with pytest.raises(GenenvError, match=r"^run mine: the Prefect API has not answered for 1 s"):
        play(Api(AWAY))


@mutation(
    "an API that is away hides that the comparison was cancelled", "tasks/placement/api.py",
    "except Exception as error:  # how this flow ends matters more", "except ValueError as error:",
)  # fmt: skip
def test_a_cancelled_comparison_is_cancelled_though_the_api_is_away(
    play: Callable[[Api], None],
) -> None:
    def cancel() -> State:
        progress.cancel()
        raise AWAY

    api = Api(cancel)
    with pytest.raises(progress.Cancelled):
        play(api)
    assert api.cancelled == [CHILD]
