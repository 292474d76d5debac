"""Rows of exported data sets: one generator a pool and format, over chunks of the pool.

Messages of the columns `prompt`, `completion` and `messages` hold role and content, as sampled: a
tool call is in the text that the policy wrote, and the column `calls` has those of the completion
with their answers. JSONL has calls apart, as OpenAI-style APIs do.
A row of D_train in `hf` is one turn of the agent: its completion holds no word of anybody else, so
that tools that train on completions train on the agent's words, with any tokenizer.
"""

# pyarrow has no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import duckdb
import pyarrow as pa

from genenv_core.algorithm.chance import above_chance
from genenv_core.domains.protocol import Domain, tools_of
from genenv_core.domains.tool_calls import canonical, reader_of
from genenv_core.exchange import Format, Pool
from genenv_core.exchange.pools.turns import conversation_start, fine_tuning, whole_turns
from genenv_core.play.calls import said_calls, with_calls
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.duck import text
from genenv_core.types import AgentHistory, Context, JsonObject, Message, TaskDraft

Row = dict[str, Any]

CHUNK = 4000
"""Rows that are in memory together."""

_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_CALLS = pa.list_(
    pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("arguments", pa.string()),
            ("well_formed", pa.bool_()),
            ("answer", pa.string()),
        ]
    )
)
_HF_COMMON = [("messages", _MESSAGES), ("prompt", _MESSAGES), ("completion", _MESSAGES)]
_TASK = [
    ("task_id", pa.string()),
    ("family", pa.string()),
    ("difficulty", pa.float64()),
    ("program", pa.string()),
    ("epoch", pa.int64()),
]
SCHEMAS: dict[tuple[Pool, Format], Any] = {
    ("d_train", "hf"): pa.schema(
        [
            *_HF_COMMON,
            ("tools", pa.string()),
            ("calls", _CALLS),
            ("trace_id", pa.string()),
            ("turn", pa.int64()),
            ("turns", pa.int64()),
            ("group_id", pa.string()),
            *_TASK,
            ("ground_truth", pa.string()),
            ("source", pa.string()),
            ("policy_version", pa.int64()),
            ("reward", pa.float64()),
            ("success", pa.bool_()),
            ("n", pa.int64()),
            ("p_hat", pa.float64()),
        ]
    ),
    ("d_env", "hf"): pa.schema(
        [
            *_HF_COMMON,
            ("generation_id", pa.string()),
            ("context_id", pa.string()),
            *_TASK,
            ("env_policy_version", pa.int64()),
            ("p_hat", pa.float64()),
            ("r_env", pa.float64()),
            ("pay", pa.float64()),
            ("weight_raw", pa.float64()),
            ("kept", pa.bool_()),
        ]
    ),
}
# What the reward function of verl needs to judge an answer.
_REWARDED = ("prompt", "spec", "fingerprint", "domain_options")
_JUDGED: dict[Pool, list[Any]] = {
    "d_train": [(name, pa.string()) for name in _REWARDED],
    "d_env": [],
}
_POOLS: tuple[Pool, ...] = ("d_train", "d_env")
for _pool in _POOLS:
    SCHEMAS[_pool, "verl"] = pa.schema(
        [
            ("data_source", pa.string()),
            ("prompt", _MESSAGES),
            ("ability", pa.string()),
            ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
            (
                "extra_info",
                pa.struct(
                    [
                        ("split", pa.string()),
                        ("index", pa.int64()),
                        ("run_id", pa.string()),
                        *_TASK,
                        ("p_hat", pa.float64()),
                        ("r_env", pa.float64()),
                        *_JUDGED[_pool],
                    ]
                ),
            ),
        ]
    )


class PoolReader:
    """Reads one pool of one run, in the order of its ids, a chunk at a time.

    `where` is a condition on the columns of the pool. Ids are sorted and bound each chunk, so that
    Parquet skips what lies outside; only the ids are in memory together. `changes` counts
    what it left out of the rows read so far, and what it added to them.
    """

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        run: str,
        pool: Pool,
        where: str,
        domain: Domain,
        options: JsonObject,
    ) -> None:
        """Read from an open connection; the domain words pi_env's prompts and the agent's.

        `options` are those that the domain was opened with.
        """
        self._con, self._domain, self._options = con, domain, json.dumps(options)
        self.changes: Counter[str] = Counter()
        self._own = f"run_id = {text(run)}"
        self._pool: Pool = pool
        self._where = f"{self._own} AND {where}"

    def chunks(self, format_: Format) -> Iterator[list[Row]]:
        """Yield the rows of one format, at most CHUNK together."""
        sql, id_column, make = self._reading(format_)
        ids = query(
            self._con,
            f"SELECT DISTINCT {id_column} AS id FROM {self._pool} WHERE {self._where} ORDER BY 1",
        )["id"]
        done = 0
        for first in range(0, len(ids), CHUNK):
            chunk = ids[first : first + CHUNK]
            bounds = f"BETWEEN '{chunk[0]}' AND '{chunk[-1]}'"
            pool = f"(FROM {self._pool} WHERE {self._where} AND {id_column} {bounds})"
            rows = query(self._con, sql.format(own=self._own, bounds=bounds, pool=pool))
            yield [
                made
                for index, row in enumerate(rows.iter_rows(named=True))
                for made in make(row, done + index)
            ]
            done += rows.height

    def _reading(self, format_: Format) -> tuple[str, str, Callable[[Row, int], list[Row]]]:
        if self._pool == "d_env":
            make = {"hf": self._env_hf, "jsonl": self._env_jsonl, "verl": self._env_verl}
            return _D_ENV, "generation_id", make[format_]
        if format_ == "verl":
            return _TASKS, "task_id", self._task_verl
        make = {"hf": self._trace_hf, "jsonl": self._trace_jsonl}
        return _D_TRAIN, "trace_id", make[format_]

    def _trace_hf(self, row: Row, index: int) -> list[Row]:
        messages = self._transcript(row.pop("messages"))
        own = whole_turns(messages, row["turns"], row.pop("finish_reason"), self.changes)
        tools = tools_of(self._domain, _draft(row))
        hidden = ("prompt", "spec", "fingerprint")
        shown = {name: row[name] for name in row if name not in hidden} | {"turns": len(own)}
        shown["tools"] = json.dumps(list(tools)) if tools else None
        return [
            {
                **shown,
                "turn": turn,
                "calls": _calls(messages, place),
                **_conversation(
                    messages[conversation_start(messages, place) : place], [messages[place]]
                ),
            }
            for turn, place in enumerate(own)
        ]

    def _trace_jsonl(self, row: Row, index: int) -> list[Row]:
        messages = self._transcript(row["messages"])
        own = whole_turns(messages, row["turns"], row["finish_reason"], self.changes)
        tools = tools_of(self._domain, _draft(row))
        more = {"tools": list(tools)} if tools else {}
        found = (
            fine_tuning(messages[start:], [place - start for place in places], self.changes)
            for start, places in groupby(own, partial(conversation_start, messages))
        )
        return [{"messages": spoken, **more} for spoken in found if spoken is not None]

    def _transcript(self, messages: str) -> list[Message]:
        """Return a stored transcript that names its calls; it reads older ones for them here."""
        return with_calls(json.loads(messages), reader_of(self._domain))

    def _task_verl(self, row: Row, index: int) -> list[Row]:
        draft = _draft(row)
        prompt = self._domain.agent_messages(draft)
        judged = row | {"domain_options": self._options}
        return self._verl(judged, index, prompt, "rule", draft.ground_truth)

    def _env_hf(self, row: Row, index: int) -> list[Row]:
        answer: Message = {"role": "assistant", "content": row["generation_text"]}
        prompt = self._env_prompt(row)
        return [{**row, **_conversation(prompt, [answer])}]

    def _env_jsonl(self, row: Row, index: int) -> list[Row]:
        answer: Message = {"role": "assistant", "content": row["generation_text"]}
        return [{"messages": _plain([*self._env_prompt(row), answer])}]

    def _env_verl(self, row: Row, index: int) -> list[Row]:
        # pi_env's text is no truth to match; R_env in extra_info is the reward that it earned.
        return self._verl(row, index, self._env_prompt(row), "genenv", row["generation_text"])

    def _verl(
        self, row: Row, index: int, prompt: Sequence[Message], style: str, truth: str
    ) -> list[Row]:
        return [
            {
                "data_source": f"genenv/{self._domain.name}/{self._pool}",
                "prompt": _plain(prompt),
                "ability": row["family"],
                "reward_model": {"style": style, "ground_truth": truth},
                "extra_info": {**row, "split": "train", "index": index},
            }
        ]

    def _env_prompt(self, row: Row) -> list[Message]:
        """Return the messages that pi_env read, built anew for a run that did not keep them."""
        if asked := row.pop("asked"):
            return json.loads(asked)
        families: list[Row] = row["history"] or []
        attempts = sum(family["n"] for family in families)
        solved = sum(family["successes"] for family in families)
        guessed = sum(family["guessed"] for family in families)
        history = AgentHistory(
            success_rate=(
                above_chance(solved / attempts, guessed / attempts) if attempts else None
            ),
            by_family={f["family"]: (f["successes"], f["n"]) for f in families},
        )
        context = Context(row["context_id"], row["base_task_id"], _draft(row["base"]), history)
        return self._domain.env_messages(context)


_D_TRAIN = """
SELECT d.run_id, d.trace_id, d.group_id, d.task_id, d.epoch, d.policy_version, d.source, d.reward,
    d.success, t.family, t.difficulty, t.program, t.ground_truth, g.n, g.p_hat, k.messages,
    t.prompt, t.spec, t.fingerprint, r.turns, r.finish_reason
FROM {pool} AS d
JOIN traces AS r ON r.{own} AND r.trace_id = d.trace_id AND r.trace_id {bounds}
JOIN trace_tokens AS k ON k.{own} AND k.trace_id = d.trace_id AND k.trace_id {bounds}
JOIN tasks AS t ON t.{own} AND t.task_id = d.task_id
LEFT JOIN task_scores AS g ON g.{own} AND g.group_id = d.group_id
ORDER BY d.trace_id
"""

_TASKS = """
SELECT t.*, g.p_hat, g.r_env
FROM (SELECT task_id, max(group_id) AS group_id FROM {pool} GROUP BY task_id) AS d
JOIN tasks AS t ON t.{own} AND t.task_id = d.task_id AND t.task_id {bounds}
LEFT JOIN task_scores AS g ON g.{own} AND g.group_id = d.group_id
ORDER BY t.task_id
"""

# Shown to pi_env: the agent's success by family on the new tasks of the epoch before.
_D_ENV = """
WITH history AS (
    SELECT epoch, list(struct_pack(family, successes, n, guessed) ORDER BY family) AS history
    FROM (
        SELECT g.epoch, t.family, sum(g.successes)::BIGINT AS successes, sum(g.n)::BIGINT AS n,
            sum(g.n * coalesce(t.chance, 0)) AS guessed
        FROM task_scores AS g
        JOIN tasks AS t ON t.{own} AND t.task_id = g.task_id
        WHERE g.{own} AND g.source = 'generated'
        GROUP BY g.epoch, t.family
    )
    GROUP BY epoch
)
SELECT d.*, t.family, t.difficulty, t.program, t.generation_text, t.base_task_id, h.history,
    c.messages AS asked,
    struct_pack(
        prompt := b.prompt, spec := b.spec, ground_truth := b.ground_truth, program := b.program,
        family := b.family, difficulty := b.difficulty, fingerprint := b.fingerprint,
        chance := coalesce(b.chance, 0)
    ) AS base
FROM {pool} AS d
JOIN tasks AS t ON t.{own} AND t.task_id = d.task_id
JOIN tasks AS b ON b.{own} AND b.task_id = t.base_task_id
LEFT JOIN contexts AS c ON c.{own} AND c.context_id = d.context_id
LEFT JOIN history AS h ON h.epoch = t.epoch - 1
ORDER BY d.generation_id, d.epoch
"""


def _draft(row: Row) -> TaskDraft:
    spec: JsonObject = json.loads(row["spec"])
    names = ("prompt", "ground_truth", "program", "family", "difficulty", "fingerprint")
    known = {name: row[name] for name in names}
    return TaskDraft(spec=spec, chance=row.get("chance") or 0.0, **known)


def _conversation(prompt: Sequence[Message], completion: Sequence[Message]) -> Row:
    opening, answer = _plain(prompt), _plain(completion)
    return {"messages": [*opening, *answer], "prompt": opening, "completion": answer}


def _calls(messages: Sequence[Message], place: int) -> list[Row]:
    """Return the calls of a turn with their answers, None where there is none."""
    answers = {m["tool_call_id"]: m["content"] for m in messages if "tool_call_id" in m}
    return [
        {
            "id": call["id"],
            **call["function"],
            "well_formed": call["well_formed"],
            "answer": answers.get(call["id"]),
        }
        for call in said_calls(messages[place])
    ]


def _plain(messages: Sequence[Message]) -> list[JsonObject]:
    return [{"role": message["role"], "content": _text(message)} for message in messages]


def _text(message: Message) -> str:
    """Return what a message says; calls recorded beside its text are spelled as policies do."""
    recorded = [call for call in message.get("tool_calls", ()) if "span" not in call]
    return canonical(message["content"], recorded) if recorded else message["content"]
