"""Other rewards than the one that judges, in the answers of servers of OpenEnv and of ORS.

Invariants: the numbers that `other_rewards` names stand beside the reward in the stored transcript,
and nothing else of the metadata; the agent reads none of them; they change no verdict; an attempt
that goes on in a new session has to get equal ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from genenv_core.domains.kit.served.client import ServerAnswer
from genenv_core.domains.openenv import openenv
from genenv_core.domains.ors import ors
from genenv_core.domains.protocol import Domain
from genenv_core.domains.rewards import rewards_given
from genenv_core.domains.steps import stepped
from genenv_core.domains.tool_calls import written
from tests.mutations import mutation
from tests.unit.domains.openenv import double as openenv_double
from tests.unit.domains.ors import double as ors_double
from tests.unit.domains.served_play import played

MORE: dict[str, Any] = {"brief": True, "cost": -0.25, "note": "good", "loss": float("nan")}
NAMED = {"brief": 1.0, "cost": -0.25}

Made = tuple[Domain, Callable[[str], str], Any]


class Told(openenv_double.Sums):
    """Sums whose answers hold more numbers: one in the observation, the others in the metadata."""

    cost = MORE["cost"]

    def step(self, data: dict[str, Any]) -> dict[str, Any]:
        answer = super().step(data)
        answer["observation"]["cost"] = self.cost
        return {**answer, "metadata": {one: MORE[one] for one in MORE if one != "cost"}}


class ToldByTool(ors_double.OrsSums):
    """Sums whose outputs have metadata with more numbers."""

    cost = MORE["cost"]

    def say(self, arguments: dict[str, Any]) -> dict[str, Any]:
        made = super().say(arguments)
        made["output"]["metadata"] = {**MORE, "cost": self.cost}
        return made


@contextmanager
def _openenv(**options: Any) -> Iterator[Made]:
    with openenv_double.serving(session=Told, tasks=True) as server:
        domain = openenv({"url": server.url, "answer": "right", "explain": False, **options})
        yield domain, str, server


@contextmanager
def _ors(**options: Any) -> Iterator[Made]:
    with ors_double.serving(session=ToldByTool) as server:
        domain = ors({"url": server.url, "answer": "right", "explain": False, **options})
        yield domain, lambda text: written({"name": "say", "arguments": {"sum": text}}), server


SERVED = pytest.mark.parametrize("served", [_openenv, _ors])


@mutation(
    "answers have the reward alone", "genenv_core/domains/kit/served/served_domain.py",
    "seats, others = self._seats, self.other_rewards", "seats, others = self._seats, ()",
)  # fmt: skip
@mutation(
    "the agent reads rewards out of an observation",
    "genenv_core/domains/openenv/openenv_domain.py", 
    "unread = (*options.other_rewards, ", "unread = (*(), ",
)  # fmt: skip
@SERVED
def test_numbers_that_options_name_stand_beside_the_reward(served: Any) -> None:
    names = [*MORE, "reward", "absent"]
    with served(other_rewards=names, wait_s=5) as (domain, say, _):
        (draft,) = domain.parse('{"index": 1, "split": "train"}')
        transcript = played(domain, draft, say("8"), say("3"))
        given = rewards_given(transcript)
        assert given == [{"reward": None, **NAMED}, {"reward": 0.5, **NAMED}]
        assert [one["content"] for one in transcript[2::2]] == ["try again", "right"]
        assert domain.score(draft, transcript).reward == 0.5
    with served(wait_s=5) as (domain, say, _):
        (draft,) = domain.parse('{"index": 1, "split": "train"}')
        assert rewards_given(played(domain, draft, say("3"))) == [{"reward": 1.0}]


@mutation(
    "other rewards are not compared", "genenv_core/domains/kit/served/episode.py",
    "if (stage.tell(answer), answer.rewards(stage.others)) != (before, rewards):",
    "if (stage.tell(answer), answer.reward) != (before, rewards[REWARD]):",
)  # fmt: skip
@SERVED
def test_a_repeated_action_has_equal_rewards(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(other_rewards=["cost"], wait_s=5) as (domain, say, server):
        (draft,) = domain.parse('{"index": 1, "split": "train"}')
        episode = domain.episode(draft, 0)
        assert not episode.step(say("8")).done
        server.stop()
        monkeypatch.setattr(server.session, "cost", 3)
        server.start()
        failed = stepped(episode.step, say("3"))
        assert failed.failed and "the server answers action 1" in failed.messages[0]["content"]


@mutation(
    "options that name no rewards change keys", "genenv_core/domains/kit/served/options.py",
    'unused = set[str]() if self.other_rewards else {"other_rewards"}', "unused = set[str]()",
)  # fmt: skip
@SERVED
def test_names_of_rewards_are_in_the_version_where_there_are_any(served: Any) -> None:
    with served(wait_s=5) as (domain, _, _):
        assert "other_rewards" not in domain.options.meaning
    with served(other_rewards=["cost"], wait_s=5) as (domain, _, _):
        assert domain.options.meaning["other_rewards"] == ["cost"]


def test_metadata_go_before_an_observation_and_no_number_replaces_the_reward() -> None:
    answer = ServerAnswer(
        {"a": 1, "b": 2, "reward": 9}, 0.5, True, {"a": 3, "c": "4", "d": 10**400}
    )
    assert answer.rewards(["a", "b", "c", "reward"]) == {"reward": 0.5, "a": 3.0, "b": 2.0}
    assert answer.rewards(None) == {"reward": 0.5, "a": 3.0}
