"""What players and exports outside of genenv see of a conversation that began anew.

Invariants: an endpoint is sent the conversation since it began anew, and its first prompt counts;
an exported turn has the messages that the agent read there, and a fine-tuning file a conversation
for each sequence.
"""

from __future__ import annotations

from collections import Counter

from genenv_core.exchange.pools.turns import conversation_start, whole_turns
from genenv_core.types import Message, Observation
from tests.mutations import mutation
from tests.unit.exchange.test_chat_endpoint import Server, server
from tests.unit.exchange.test_chat_player import Doubling, called, played, player

TURNS = "genenv_core/exchange/pools/turns.py"
CHAT_PLAYER = "genenv_core/exchange/chat_player.py"

__all__ = ["server"]


class Forgetful(Doubling):
    """Asks anew after the first turn, and ends after the third."""

    def step(self, action: str) -> Observation:
        self.seen.append(action)
        if len(self.seen) == 1:
            again: Message = {"role": "user", "content": "again"}
            return Observation((again,), done=False, anew=True)
        more: Message = {"role": "user", "content": "go on"}
        return Observation((more,), done=len(self.seen) == 3)


@mutation(
    "an endpoint is sent what the agent should have forgotten", CHAT_PLAYER,
    "attempt.messages[attempt.start :]", "attempt.messages",
)  # fmt: skip
@mutation(
    "a prompt that begins anew is not counted", CHAT_PLAYER,
    "attempt.usage[0] += reply.prompt_tokens", "attempt.usage[0] = reply.prompt_tokens",
)  # fmt: skip
def test_an_endpoint_reads_the_conversation_since_it_began_anew(server: Server) -> None:
    server.replies = [called({"x": place}, text=str(place)) for place in range(3)]
    ((rollout,),) = played(player(server, Forgetful()), "begin").values()
    sent = [[one["content"] for one in body["messages"]] for body in server.bodies]
    assert sent == [["begin"], ["again"], ["again", "1\n", "go on"]]
    assert [place for place, one in enumerate(rollout.messages) if one.get("anew")] == [2]
    assert (rollout.turns, rollout.usage) == (3, (10, 6))  # two prompts of 5, three answers of 2


MESSAGES: list[Message] = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "a"},
    {"role": "user", "content": "q2", "anew": True},
    {"role": "assistant", "content": "b"},
    {"role": "tool", "content": "t"},
    {"role": "assistant", "content": "c"},
]


@mutation(
    "an exported turn has what the agent had forgotten", TURNS,
    'if messages[i].get("anew")', "if False",
)  # fmt: skip
def test_a_turn_belongs_to_the_conversation_that_the_agent_read() -> None:
    own = whole_turns(MESSAGES, 3, "stop", Counter())
    assert own == [1, 3, 5]
    assert [conversation_start(MESSAGES, place) for place in own] == [0, 2, 2]
