"""What players and exports outside of genenv see of a conversation that began anew.

Invariants: an endpoint is sent the conversation since it began anew, and its first prompt counts;
an exported turn has the messages that the agent read there, and a fine-tuning file a conversation
for each sequence; nothing that the agent said is lost, and nothing stands there twice.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genenv_core.domains.tool_calls import written
from genenv_core.exchange import Format
from genenv_core.exchange.pools.export import PoolSelection, export
from genenv_core.exchange.pools.turns import conversation_start, whole_turns
from genenv_core.play.transcript import UNKNOWN
from genenv_core.storage.sql.sources import open_tables
from genenv_core.types import Message, Observation
from tests.mutations import mutation
from tests.unit.builders_sequences import RUN, ForgetfulRoot, forgetful_root
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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ForgetfulRoot:
    return forgetful_root(tmp_path_factory.mktemp("sequences") / "root")


def exported(made: ForgetfulRoot, format_: Format, folder: Path) -> Path:
    with open_tables(made.store, [RUN]) as tables:
        export(tables, RUN, "d_train", format_, folder, PoolSelection())
    return folder


def said_in(made: ForgetfulRoot, place: int) -> list[str]:
    """Return the text of each turn of an attempt, by the ids that were sampled."""
    return [made.chat.decode(one.token_ids) for _, one in made.kept[place]]


def plain(message: dict[str, Any]) -> str:
    """Return the text of an exported message, its calls spelled as the agent spelled them."""
    calls: list[str] = []
    for call in message.get("tool_calls", ()):
        name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
        made = written({"name": name, "arguments": arguments})
        calls.append(arguments["text"] if name == UNKNOWN else made)
    return (message["content"] or "") + "".join(calls)


@mutation(
    "a file has the first sequence of an attempt alone", "genenv_core/exchange/pools/rows.py",
    "for spoken in found if spoken is not None]",
    "for spoken in [*found][:1] if spoken is not None]",
)  # fmt: skip
@mutation(
    "a sequence of a file has the turns of another one", "genenv_core/exchange/pools/rows.py",
    "for start, places in groupby(own, partial(conversation_start, messages))",
    "for start, places in groupby(own, lambda place: 0)",
)  # fmt: skip
def test_jsonl_has_a_conversation_for_each_sequence_and_each_turn_once(
    made: ForgetfulRoot, tmp_path: Path
) -> None:
    lines = (exported(made, "jsonl", tmp_path / "j") / "train.jsonl").read_text().splitlines()
    found = [json.loads(line)["messages"] for line in lines]
    assert len(found) == 4 + 2 + 3
    said = [
        plain(message) for spoken in found for message in spoken if message["role"] == "assistant"
    ]
    assert said == [text for place in range(3) for text in said_in(made, place)]
    for spoken in found:  # what the agent read there: a request, and the looks that it repeats
        first, second, *_ = spoken
        assert first["role"] == "user" and second["role"] == "assistant"
    counts = [spoken[0]["content"].count(" ; ") for spoken in found]
    assert counts == [0, 1, 2, 2, 0, 1, 0, 1, 2]


def test_hf_has_a_row_for_each_turn_with_what_the_agent_read(
    made: ForgetfulRoot, tmp_path: Path
) -> None:
    folder = exported(made, "hf", tmp_path / "h") / "data"
    rows = pl.read_parquet(folder / "*.parquet").sort("trace_id", "turn").to_dicts()
    told = [(place, one) for place in range(3) for one in made.kept[place]]
    assert len(rows) == len(told)
    for row, (place, (request, completion)) in zip(rows, told, strict=True):
        assert row["trace_id"] == made.traces[place]
        assert [one["content"] for one in row["completion"]] == [
            made.chat.decode(completion.token_ids)
        ]
        read = made.chat.decode(request.prompt_ids)
        places = [read.find(one["content"]) for one in row["prompt"]]
        assert places == sorted(places) and places[0] >= 0
        # Marks of the template and roles aside, it read nothing else.
        assert read.count("user") == sum(one["role"] == "user" for one in row["prompt"])
        assert read.count("assistant") == 1 + sum(o["role"] == "assistant" for o in row["prompt"])
