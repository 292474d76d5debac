"""A task's story: what pi_env saw and wrote, what the agent said, and what followed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from flows.view.pages import Page, about
from flows.view.parting import HeldAttempt, SpokenTurn, held, shown_turns
from flows.view.reading import Panel, Reader, Row
from genenv_core.benchmarks.measuring.expected import right_answer
from genenv_core.errors import NotFound
from genenv_core.play.transcript import Turn, turns
from genenv_core.storage.sql.duck import text
from genenv_core.types import HELDOUT

HELD_OUT = {source.value for source in HELDOUT}

SHOWN = 16
"""Most attempts with their words on the page; the others are a click away."""


@dataclass(frozen=True, slots=True)
class Card:
    """The attempts with the same words and the same verdict, and these words."""

    rows: list[Row]
    held: HeldAttempt


def page(reader: Reader, request: Request) -> Page:
    """Return the story of a task; raises NotFound."""
    run, task = request.path_params["run"], request.path_params["task"]
    about(reader, run)
    own = f"run_id = {text(run)}"
    facts = reader.panel(
        "task", "The task", f"SELECT * FROM tasks WHERE {own} AND task_id = {text(task)}"
    )
    row = facts.first
    if row is None:
        raise NotFound(f"run {run} has no task {task!r}: search for its id, or for words of it")
    return Page(
        "story.html.j2", task,
        {
            "run": run, "facts": facts, "task": row, "beside": _beside(reader, run, task),
            "held_out": row["source"] in HELD_OUT,
            "rest": lambda: _rest(reader, run, row),
        },
        streams=True,
    )  # fmt: skip


def _rest(reader: Reader, run: str, row: Row) -> dict[str, Any]:
    """Return the values below the facts of a task: their questions pass over all rows."""
    task, own = row["task_id"], f"run_id = {text(run)}"
    attempts = _attempts(reader, run, task)
    expected = right_answer(reader.store, run, row)
    measured = _measured(reader, run, row)
    if measured is None:
        said, cards = _said(reader, attempts, expected)
    else:
        said, cards = _answered(reader, run, task, expected)
    prompt = _prompt(row)
    opening = cards[0].held.request if cards else ()
    return {
        "attempts": attempts, "expected": expected, "prompt": prompt, "said": said, "cards": cards,
        "more_read": () if opening == prompt else opening, "opening": opening,
        "some_failed": any(card.rows[0]["success"] is False for card in cards),
        "measured": measured,
        "context": _context(reader, row["context_id"]),
        "checks": reader.panel(
            "checks", "Flaws that were looked for",
            f"SELECT flaw, NOT passed AS found, detail FROM certificates WHERE {own} AND "
            f"task_id = {text(task)} ORDER BY passed, flaw",
        ),
        "group": reader.panel(
            "group", "How it scored",
            "SELECT group_id, epoch, n, successes, p_hat, r_env, reward_mean, reward_std, "
            f"zero_signal FROM task_scores WHERE {own} AND task_id = {text(task)} "
            "ORDER BY epoch",
        ),
        "decisions": reader.panel(
            "decisions", "What the updates might use, and why",
            "SELECT epoch, update, kept, reason, p_hat, distance FROM selections "
            f"WHERE {own} AND task_id = {text(task)} ORDER BY epoch, update",
        ),
        "updates": _updates(reader, run, row["generation_id"]),
        "resembled": _resembled(reader, run, row),
        "siblings": _siblings(reader, run, row),
        "history": reader.panel(
            "history", "This task and equal ones, over the epochs",
            "SELECT occasion, epoch, task_id, source, policy_version, n, successes, p_hat, "
            "p_hat_before, r_env, agent_updates, env_updates FROM task_history "
            f"WHERE {own} AND fingerprint = {text(row['fingerprint'] or '')} ORDER BY occasion",
        ),
    }  # fmt: skip


def _prompt(row: Row) -> tuple[SpokenTurn, ...]:
    """Return the task's request as turns; () for a text that became no task."""
    messages = json.loads(row["spec"]).get("messages") if row["spec"] else None
    if messages is not None:
        return shown_turns(turns(messages))
    return shown_turns([Turn("user", (row["prompt"],))] if row["prompt"] else [])


def _beside(reader: Reader, run: str, task: str) -> Panel:
    return reader.panel(
        "beside", "The tasks before and after it",
        f"SELECT max(task_id) FILTER (task_id < {text(task)}) AS before, "
        f"min(task_id) FILTER (task_id > {text(task)}) AS after "
        f"FROM tasks WHERE run_id = {text(run)}",
    )  # fmt: skip


def _attempts(reader: Reader, run: str, task: str) -> Panel:
    return reader.panel(
        "attempts", "Attempts",
        "SELECT r.trace_id, r.sample_index, r.success, r.reward, r.failure, r.error, r.turns, "
        "r.tool_calls, r.response_tokens, r.policy_version, u.advantage, "
        "array_to_string(u.updates, ', ') AS agent_updates\n"
        "FROM judged_traces AS r\n"
        "LEFT JOIN uses AS u ON u.run_id = r.run_id AND u.row_id = r.trace_id "
        "AND u.policy = 'agent'\n"
        f"WHERE r.run_id = {text(run)} AND r.task_id = {text(task)}\nORDER BY r.trace_id",
    )  # fmt: skip


def _measured(reader: Reader, run: str, row: Row) -> Panel | None:
    """Return the agents' results on a held-out task, None for any other task."""
    if row["source"] not in HELD_OUT:
        return None
    return reader.panel(
        "measured", "How the agent of each epoch did on it",
        "SELECT e.epoch, e.mode, count(*) AS attempts, avg(CAST(e.success AS INTEGER)) AS success, "
        "avg(e.answer_probability) AS answer_probability, "
        "min(e.failure) FILTER (NOT e.success) AS failure\nFROM evaluations AS e\n"
        f"WHERE e.run_id = {text(run)} AND e.task_id = {text(row['task_id'])}\n"
        "GROUP BY e.epoch, e.mode ORDER BY e.epoch, e.mode",
    )  # fmt: skip


def _context(reader: Reader, context: str | None) -> tuple[Panel, tuple[SpokenTurn, ...]] | None:
    """Return pi_env's prompt for the task, None for tasks that it did not write."""
    if context is None:
        return None
    panel = reader.panel(
        "context", "What pi_env saw",
        f"SELECT messages FROM contexts WHERE context_id = {text(context)} LIMIT 1",
    )  # fmt: skip
    if panel.first is None:
        return None
    return panel, shown_turns(turns(json.loads(panel.first["messages"])))


def _updates(reader: Reader, run: str, generation: str | None) -> Panel | None:
    if generation is None:
        return None
    return reader.panel(
        "updates", "Updates of pi_env that trained on it",
        "SELECT u.epoch, coalesce(d.pay, d.r_env) AS pay, u.weight, u.checkpoint, u.published\n"
        "FROM lineage AS u LEFT JOIN d_env AS d "
        "ON d.run_id = u.run_id AND d.generation_id = u.row_id\n"
        f"WHERE u.run_id = {text(run)} AND u.policy = 'env' AND u.row_id = {text(generation)}\n"
        "ORDER BY u.epoch",
    )  # fmt: skip


def _resembled(reader: Reader, run: str, row: Row) -> Panel | None:
    """Return the earlier task and the test task that a task resembles most, None without either."""
    if row["similarity"] is None and row["test_similarity"] is None:
        return None
    return reader.panel(
        "resembled", "What it resembles",
        "WITH found AS MATERIALIZED (\n    FROM lookalikes "
        f"WHERE run_id = {text(run)} AND task_id = {text(row['task_id'])}\n)\n"
        "SELECT 'earlier task' AS nearest, nearest_task_id AS task_id, nearest_epoch AS epoch, "
        "similarity, nearest_program AS program, NULL AS test_before, NULL AS test_after "
        "FROM found\nUNION ALL BY NAME\n"
        "SELECT 'test task' AS nearest, nearest_test_id AS task_id, 0 AS epoch, "
        "test_similarity AS similarity, test_program AS program, test_before, test_after "
        "FROM found\nORDER BY nearest",
    )  # fmt: skip


def _siblings(reader: Reader, run: str, row: dict[str, Any]) -> Panel | None:
    """Return pi_env's texts on the same base task, from this epoch on."""
    if row["base_task_id"] is None:
        return None
    return reader.panel(
        "siblings", "What pi_env made of the same base task, then and later",
        "SELECT t.epoch, t.task_id, t.env_policy_version, t.valid, t.rejection, t.family, "
        "t.difficulty, g.successes, g.n, g.r_env, t.generation_text\n"
        "FROM tasks AS t LEFT JOIN task_scores AS g "
        "ON g.run_id = t.run_id AND g.task_id = t.task_id AND g.epoch = t.epoch\n"
        f"WHERE t.run_id = {text(run)} AND t.base_task_id = {text(row['base_task_id'])} "
        f"AND t.epoch >= {row['epoch']}\nORDER BY t.epoch, t.task_id",
    )  # fmt: skip


def _said(reader: Reader, attempts: Panel, expected: str) -> tuple[Panel | None, list[Card]]:
    """Return the words of the first attempts: a card for each group with the same words."""
    rows = {row["trace_id"]: row for row in attempts.rows[:SHOWN]}
    if not rows:
        return None, []
    panel = reader.panel(
        "said", "What was said",
        "SELECT DISTINCT trace_id, messages FROM trace_tokens "
        f"WHERE trace_id IN ({', '.join(map(text, rows))}) ORDER BY trace_id",
    )  # fmt: skip
    cards: dict[Any, Card] = {}
    for one in panel:
        row = rows[one["trace_id"]]
        judged = (row["success"], row["failure"], row["reward"])
        words = held(json.loads(one["messages"]), expected, failed=row["success"] is False)
        cards.setdefault((words, *judged), Card([], words)).rows.append(row)
    return panel, list(cards.values())


def _answered(
    reader: Reader, run: str, task: str, expected: str
) -> tuple[Panel | None, list[Card]]:
    """Return the agents' answers to a held-out task: a card for each group with the same words.

    They are greedy answers where there are some, else sampled ones; () where a run did not store
    them.
    """
    panel = reader.panel(
        "said", "What was said",
        "SELECT e.mode, list_sort(list_distinct(list(e.epoch))) AS epochs, e.success, e.failure, "
        "e.reward, x.messages\n"
        "FROM evaluations AS e JOIN evaluation_texts AS x ON x.run_id = e.run_id "
        "AND x.task_id = e.task_id AND x.epoch = e.epoch AND x.mode = e.mode "
        "AND x.sample_index = e.sample_index\n"
        f"WHERE e.run_id = {text(run)} AND e.task_id = {text(task)}\n"
        "GROUP BY e.mode, e.success, e.failure, e.reward, x.messages\n"
        "QUALIFY e.mode = min(e.mode) OVER ()\n"
        f"ORDER BY max(e.epoch) DESC, x.messages LIMIT {SHOWN}",
    )  # fmt: skip
    if not panel.rows:
        return None, []
    return panel, [
        Card([one], held(json.loads(one["messages"]), expected, failed=one["success"] is False))
        for one in panel
    ]
