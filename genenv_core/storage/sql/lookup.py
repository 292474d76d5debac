"""One trace, group, task or generation by its id, with all that the tables know about it.

The records hold plain values, so that `dataclasses.asdict` of one is ready for JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from genenv_core.config.sections.benchmark import OF_RUN
from genenv_core.config.stages import FIRST
from genenv_core.errors import NotFound, QueryError
from genenv_core.storage import paths
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import RunSource, connect, query
from genenv_core.storage.sql.duck import text
from genenv_core.storage.sql.sources import answered
from genenv_core.storage.store.protocol import Store
from genenv_core.types import Message, Policy

Row = dict[str, Any]

HOW_TO_FIND = (
    "ids look like g000001-4edb7053-0000021.0004 (a trace), g000001-4edb7053-0000021 (its group), "
    "t000001-300e67f1-0000026 (a task), n000001-300e67f1-0000026 (a generation); find one with: "
    'genenv sql "SELECT trace_id, task_id, success FROM scores LIMIT 5"'
)


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its text, its logprob when sampled, and whether the policy sampled it."""

    text: str
    logprob: float
    sampled: bool


@dataclass(frozen=True, slots=True)
class SequenceStart:
    """Where a further sequence of an attempt begins.

    `token` is the place of the first token of its prompt in `TraceRecord.tokens`, from 0; `said`
    has in words at which turn that is, and what the prompt was made from.
    """

    token: int
    sequence: int
    turn: int
    said: str


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One attempt.

    `facts` is its row of `judged_traces`, without the benchmark's names; `parts` say how a
    benchmark judged it. `sampled_by` is the digest of the checkpoint that wrote it. `shown` is the
    prompt, decoded by that checkpoint's tokenizer with all that the chat template adds; '' behind
    an endpoint. `tokens` follow it; where the conversation began anew, they include each further
    prompt, from the places in `begins` on. `trained` has a row for each update that used the
    attempt: epoch, source, advantage, checkpoint (what the update made), published.
    """

    facts: Row
    sampled_by: str | None
    shown: str
    messages: list[Message]
    tokens: list[Token]
    begins: list[SequenceStart]
    trained: list[Row]


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The attempts at one task in one epoch.

    `facts` is its row of `task_scores`; `selections` say for each update whether it might use the
    group and why (update, epoch, kept, reason, p_hat, distance).
    """

    facts: Row
    selections: list[Row]
    traces: list[TraceRecord]


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task or rejected generation.

    `facts` is its row of `tasks`. `shown` is pi_env's prompt, decoded by its tokenizer, `written`
    the tokens of its answer; both are empty for data tasks. `d_env` is the generation's row of that
    pool, `trained` has the environment updates that used it (epoch, weight, checkpoint, published),
    `sampled_by` is the digest of the weights of pi_env that wrote it.
    """

    run_id: str
    also_in: list[str]
    facts: Row
    sampled_by: str | None
    shown: str
    written: list[Token]
    d_env: Row | None
    trained: list[Row]
    groups: list[GroupRecord]


def look_up(store: Store, ident: str, run: str | None = None) -> TaskRecord:
    """Return the task that an id belongs to, with the groups and traces that the id names.

    The id of a task or of its generation names all of its groups and traces, the id of a group all
    traces of that group, and the id of a trace that one. Equal work of several runs has equal ids:
    the record is of `run`, or else of the first run. Raises QueryError when nothing has this id.
    """

    def read(found: list[RunSource]) -> TaskRecord:
        with connect(found) as con:
            return _RecordReader(store, con, ident).task()

    return answered(store, [run] if run else [], read)


class _RecordReader:
    """Reads the records of one id in the first run that has it."""

    def __init__(self, store: Store, con: duckdb.DuckDBPyConnection, ident: str) -> None:
        self._store, self._con = store, con
        where = text(ident)
        found = query(
            con,
            "SELECT run_id, task_id, NULL AS group_id, NULL AS trace_id FROM tasks "
            f"WHERE task_id = {where} OR generation_id = {where} "
            "UNION ALL SELECT DISTINCT run_id, task_id, group_id, "
            f"CASE WHEN trace_id = {where} THEN trace_id END FROM traces "
            f"WHERE trace_id = {where} OR group_id = {where} "
            "UNION ALL SELECT DISTINCT run_id, task_id, NULL, NULL FROM evaluations "
            f"WHERE task_id = {where} ORDER BY run_id, task_id",
        ).to_dicts()
        if not found:
            raise QueryError(f"nothing in {store.uri} has the id {ident!r}; {HOW_TO_FIND}")
        first = found[0]
        self._run: str = first["run_id"]
        self._also = sorted({row["run_id"] for row in found} - {self._run})
        self._own = f"run_id = {text(self._run)}"
        self._task_id: str = first["task_id"]
        self._narrow = "".join(
            f" AND {column} = {text(first[column])}"
            for column in ("group_id", "trace_id")
            if first[column] is not None
        )

    def task(self) -> TaskRecord:
        """Return the record of the task."""
        facts = self._rows("tasks", f"task_id = {text(self._task_id)}")[0]
        ident = facts["generation_id"]
        generation = self._rows("generations", f"generation_id = {text(ident)}") if ident else []
        d_env = self._rows("d_env", f"generation_id = {text(ident)}") if ident else []
        shown, written = "", list[Token]()
        if generation:
            tokenizer = tokenizer_of(self._store, self._run, Policy.ENV)
            row = generation[0]
            shown = "".join(token_texts(tokenizer, row["prompt_ids"]))
            written = _tokens(tokenizer, row["token_ids"], row["logprobs"], None)
        return TaskRecord(
            run_id=self._run,
            also_in=self._also,
            facts=facts,
            sampled_by=self._checkpoint(Policy.ENV, facts["env_policy_version"]),
            shown=shown,
            written=written,
            d_env=d_env[0] if d_env else None,
            trained=self._trained(Policy.ENV, ident, "weight") if ident else [],
            groups=list(self._groups()),
        )

    def _groups(self) -> Iterator[GroupRecord]:
        tokenizer = tokenizer_of(self._store, self._run, Policy.AGENT)
        traces: dict[str, list[TraceRecord]] = {}
        further = self._further()
        wanted = f"task_id = {text(self._task_id)}{self._narrow}"
        for row in query(
            self._con,
            "SELECT r.* EXCLUDE (benchmark, item, category), "
            "k.prompt_ids, k.token_ids, k.logprobs, k.loss_mask, k.messages FROM "
            f"(FROM judged_traces WHERE {self._own} AND {wanted}) AS r "
            f"JOIN trace_tokens AS k ON k.{self._own} AND k.trace_id = r.trace_id "
            "ORDER BY r.trace_id",
        ).to_dicts():
            ids, logprobs = row.pop("token_ids"), row.pop("logprobs")
            mask, messages = row.pop("loss_mask"), json.loads(row.pop("messages"))
            shown = "".join(token_texts(tokenizer, row.pop("prompt_ids")))
            tokens, begins = _tokens(tokenizer, ids, logprobs, mask), list[SequenceStart]()
            for one in further.get(row["trace_id"], []):
                begins.append(
                    SequenceStart(len(tokens), one["sequence"], one["turn"], beginning(one))
                )
                tokens += _tokens(tokenizer, *with_prompt(one))
            traces.setdefault(row["group_id"], []).append(
                TraceRecord(
                    facts=row,
                    sampled_by=self._checkpoint(Policy.AGENT, row["policy_version"])
                    or measured_checkpoint(self._store, self._run),
                    shown=shown,
                    messages=messages,
                    tokens=tokens,
                    begins=begins,
                    trained=self._trained(Policy.AGENT, row["trace_id"], "advantage"),
                )
            )
        for group_id, found in traces.items():
            where = f"group_id = {text(group_id)}"
            scores = self._rows("task_scores", where)
            yield GroupRecord(
                facts=scores[0] if scores else {"group_id": group_id},
                selections=self._rows("selections", where),
                traces=found,
            )

    def _further(self) -> dict[str, list[Row]]:
        """Return the further sequences of the wanted traces by trace id, in order."""
        wanted = f"task_id = {text(self._task_id)}{self._narrow}"
        found: dict[str, list[Row]] = {}
        for row in query(
            self._con,
            f"SELECT * FROM trace_sequences WHERE {self._own} AND trace_id IN "
            f"(SELECT trace_id FROM traces WHERE {self._own} AND {wanted}) "
            "ORDER BY trace_id, sequence",
        ).to_dicts():
            found.setdefault(row["trace_id"], []).append(row)
        return found

    def _checkpoint(self, policy: str, version: int | None) -> str | None:
        """Return the digest of the weights that were current as this version."""
        if version is None:
            return None
        where = f"policy = '{policy}' AND epoch = {version} AND published"
        found = self._rows("checkpoints", where)
        return found[0]["digest"] if found else None

    def _trained(self, policy: str, row_id: str, number: str) -> list[Row]:
        return query(
            self._con,
            f"SELECT epoch, source, {number}, checkpoint, published FROM lineage WHERE {self._own} "
            f"AND policy = '{policy}' AND row_id = {text(row_id)} ORDER BY epoch",
        ).to_dicts()

    def _rows(self, table: str, where: str) -> list[Row]:
        return query(self._con, f"SELECT * FROM {table} WHERE {self._own} AND {where}").to_dicts()


def tokenizer_of(store: Store, run: str, policy: Policy) -> Tokenizer | None:
    """Return the tokenizer that bootstrap laid out for a policy; no update changes it.

    For a measurement, it is the tokenizer of the measured run, or of the measured folder as it is
    today. Returns None where there is no tokenizer file.
    """
    log = RunLog(store, run)
    key = log.keys(0).get(FIRST)
    if key is None:
        return _measured_tokenizer(store, log) if policy is Policy.AGENT else None
    try:
        manifest = Manifest.from_bytes(store.read(paths.manifest(FIRST, key)))
        parts = {part.name: part.path for part in manifest.of_checkpoint(policy)}
        data = store.read(parts[f"{policy}/tokenizer.json"])
    except (KeyError, NotFound):
        return None
    return Tokenizer.from_str(data.decode("utf-8"))


def _measured_tokenizer(store: Store, log: RunLog) -> Tokenizer | None:
    asked: Row = log.info().config.get("benchmark") or {}
    name = str(asked.get("model") or "")
    if name.startswith(OF_RUN):
        return tokenizer_of(store, name.removeprefix(OF_RUN).partition("@")[0], Policy.AGENT)
    path = Path(name).expanduser() / "tokenizer.json"
    return Tokenizer.from_file(str(path)) if name and path.is_file() else None


def measured_checkpoint(store: Store, run: str) -> str | None:
    """Return the digest of the weights that a measurement sampled from; None without any."""
    key = RunLog(store, run).keys(0).get("benchmark")
    if key is None:
        return None
    try:
        manifest = Manifest.from_bytes(store.read(paths.manifest("benchmark", key)))
    except NotFound:
        return None
    model = manifest.key_parts["inputs"]["model"]
    return model.partition("@")[0] if isinstance(model, str) else None


def beginning(row: Row) -> str:
    """Return in words where a further sequence begins, and what its prompt was made from."""
    begins = f"Sequence {row['sequence']} begins with a prompt at turn {row['turn']}"
    if row["parent"] is None:
        return f"{begins}, made from no other sequence."
    before = f" before turn {row['branch_turn']}" if row["branch_turn"] < row["turn"] else ""
    return f"{begins}, made from sequence {row['parent']}{before}."


def with_prompt(row: Row) -> tuple[list[int], list[float], list[int]]:
    """Return ids, logprobs and mask of a further sequence; its prompt stands first, not sampled."""
    prompt = row["prompt_ids"]
    ids, logprobs, mask = (row[name] for name in ("token_ids", "logprobs", "loss_mask"))
    return [*prompt, *ids], [0.0] * len(prompt) + logprobs, [0] * len(prompt) + mask


def _tokens(
    tokenizer: Tokenizer | None,
    ids: Sequence[int],
    logprobs: Sequence[float],
    mask: Sequence[int] | None,
) -> list[Token]:
    texts = token_texts(tokenizer, ids)
    sampled = mask or [1] * len(ids)
    return [Token(t, p, bool(m)) for t, p, m in zip(texts, logprobs, sampled, strict=True)]


def token_texts(tokenizer: Tokenizer | None, ids: Sequence[int]) -> list[str]:
    """Return the text of each token; ids in brackets where there is no tokenizer.

    A character that several tokens spell belongs to the last of them.
    """
    if tokenizer is None:
        return [f"[{token}]" for token in ids]
    stream = DecodeStream(skip_special_tokens=False)
    return [stream.step(tokenizer, token) or "" for token in ids]
