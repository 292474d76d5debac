"""A task's story: what pi_env saw and wrote, what the agent made of it, and what came of that."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from flows.view.pages import Page, about
from flows.view.reading import Panel, Reader
from genenv_core.benchmarks.measuring.expected import right_answer
from genenv_core.errors import NotFound
from genenv_core.play.transcript import turns
from genenv_core.storage.sql.duck import text

SHOWN = 16
"""Attempts whose words are on the page; the others are a click away."""


def page(reader: Reader, request: Request) -> Page:
    """Return the story of a task; raises NotFound."""
    run, task = request.path_params["run"], request.path_params["task"]
    about(reader, run)
    own = f"run_id = {text(run)}"
    facts = reader.panel(
        "task", "The task", f"SELECT * FROM tasks WHERE {own} AND task_id = {text(task)}"
    )
    if facts.first is None:
        raise NotFound(f"run {run} has no task {task!r}: search for its id, or for words of it")
    row = facts.first
    attempts = _attempts(reader, run, task)
    return Page(
        "story.html.j2", task,
        {
            "run": run, "facts": facts, "task": row, "attempts": attempts,
            "expected": right_answer(reader.store, run, row),
            "context": _context(reader, row["context_id"]),
            "prompt": turns(json.loads(row["spec"])["messages"]) if _has_messages(row) else None,
            "checks": reader.panel(
                "checks", "Checks it passed",
                f"SELECT flaw, passed, detail FROM certificates WHERE {own} AND "
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
            "siblings": _siblings(reader, run, row),
            "history": reader.panel(
                "history", "This task and equal ones, over the epochs",
                "SELECT occasion, epoch, task_id, source, policy_version, n, successes, p_hat, "
                "p_hat_before, r_env, agent_updates, env_updates FROM task_history "
                f"WHERE {own} AND fingerprint = {text(row['fingerprint'] or '')} ORDER BY occasion",
            ),
            "said": _said(reader, attempts),
        },
    )  # fmt: skip


def _has_messages(row: dict[str, Any]) -> bool:
    return bool(row["spec"]) and "messages" in json.loads(row["spec"])


def _attempts(reader: Reader, run: str, task: str) -> Panel:
    return reader.panel(
        "attempts", "Attempts",
        "SELECT r.trace_id, r.sample_index, s.success, s.reward, s.failure, r.error, r.turns, "
        "r.tool_calls, r.response_tokens, r.policy_version, any_value(u.advantage) AS advantage, "
        "string_agg(CAST(u.epoch AS VARCHAR), ', ' ORDER BY u.epoch) AS agent_updates\n"
        "FROM traces AS r\n"
        "LEFT JOIN scores AS s ON s.run_id = r.run_id AND s.trace_id = r.trace_id\n"
        "LEFT JOIN update_samples AS u ON u.run_id = r.run_id AND u.row_id = r.trace_id "
        "AND u.policy = 'agent'\n"
        f"WHERE r.run_id = {text(run)} AND r.task_id = {text(task)}\n"
        "GROUP BY ALL ORDER BY r.trace_id",
    )  # fmt: skip


def _context(reader: Reader, context: str | None) -> tuple[Panel, list[Any]] | None:
    """Return what pi_env was asked, None for tasks that it did not write."""
    if context is None:
        return None
    panel = reader.panel(
        "context", "What pi_env saw",
        f"SELECT messages FROM contexts WHERE context_id = {text(context)} LIMIT 1",
    )  # fmt: skip
    return (panel, turns(json.loads(panel.rows[0]["messages"]))) if panel.rows else None


def _updates(reader: Reader, run: str, generation: str | None) -> Panel | None:
    if generation is None:
        return None
    return reader.panel(
        "updates", "Updates of pi_env that trained on it",
        "SELECT epoch, weight, checkpoint, published FROM lineage "
        f"WHERE run_id = {text(run)} AND policy = 'env' AND row_id = {text(generation)} "
        "ORDER BY epoch",
    )  # fmt: skip


def _siblings(reader: Reader, run: str, row: dict[str, Any]) -> Panel | None:
    """Return what pi_env made of the same base task, then and later."""
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


def _said(reader: Reader, attempts: Panel) -> tuple[Panel, dict[str, list[Any]]] | None:
    """Return the words of the first attempts, None without any."""
    ids = [row["trace_id"] for row in attempts][:SHOWN]
    if not ids:
        return None
    panel = reader.panel(
        "said", "What was said",
        "SELECT DISTINCT trace_id, messages FROM trace_tokens "
        f"WHERE trace_id IN ({', '.join(map(text, ids))}) ORDER BY trace_id",
    )  # fmt: skip
    return panel, {row["trace_id"]: turns(json.loads(row["messages"])) for row in panel}
