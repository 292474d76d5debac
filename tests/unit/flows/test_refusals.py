"""The name of a flow run whose request is refused.

Invariants: a wrong request names its flow run, with the reason; another failure does not; an API
that is away costs the name alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import pytest

from flows.deploy import refusals
from flows.deploy.deployed import begin
from flows.deploy.refusals import LENGTH, refusals_named
from genenv_core.config.request import ShortRequest
from genenv_core.errors import ConfigError, StageError
from tests.mutations import mutation

REFUSALS = "flows/deploy/refusals.py"


class Api:
    """Keeps the names that flow runs get; or answers nothing."""

    def __init__(self, *, away: bool = False) -> None:
        self.away, self.names = away, list[str]()

    def update_flow_run(self, flow_run_id: Any, name: str) -> None:
        """Keep a name."""
        if self.away:
            raise ConnectionError("no route")
        self.names.append(name)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """Return the API that flow runs are renamed in."""
    made = Api()

    @contextlib.contextmanager
    def client(**_: Any) -> Generator[Api]:
        yield made

    monkeypatch.setattr(refusals, "get_client", client)
    return made


@mutation(
    "a refused request leaves a random name", "flows/deploy/deployed.py",
    "    with refusals_named():\n        work = work_of(request)\n",
    "    work = work_of(request)\n",
)  # fmt: skip
def test_a_wrong_request_names_its_flow_run(api: Api) -> None:
    request = ShortRequest(changes=["rollout.n=many"])
    with pytest.raises(ConfigError, match="a whole number"):
        begin.fn(request.model_copy(update={"changes": ["root=/root", "rollout.n=many"]}))
    assert len(api.names) == 1
    assert api.names[0].startswith("refused · request: rollout.n: expected a whole number")


@mutation(
    "a failed stage is a refused request", REFUSALS, "if error.exit_status == USAGE:", "if 1:"
)
def test_another_failure_keeps_the_name(api: Api) -> None:
    with pytest.raises(StageError), refusals_named():
        raise StageError("no memory")
    assert api.names == []


def test_a_long_reason_is_cut_off_in_the_name(api: Api) -> None:
    with pytest.raises(ConfigError), refusals_named():
        raise ConfigError("x" * 3 * LENGTH)
    assert api.names == [f"refused · {'x' * LENGTH}"]


def test_an_api_that_is_away_hides_no_reason(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    api.away = True
    with pytest.raises(ConfigError, match="no field"), refusals_named():
        raise ConfigError("rollout.nn is no field")
    assert "keeps its name: ConnectionError: no route" in caplog.text
