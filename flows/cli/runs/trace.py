"""`genenv trace`: one attempt, one group or one task, as a person reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from flows.cli.options import Json, Root, existing
from flows.shown.json_text import json_text
from flows.shown.tables import console
from genenv_core.domains.tool_calls import as_read
from genenv_core.hiding import visible
from genenv_core.play.transcript import ToolCall, turns
from genenv_core.types import Policy, TaskSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from genenv_core.storage.sql.lookup import GroupRecord, TaskRecord, Token, TraceRecord
    from genenv_core.types import Message

HEAT = ((0.9, ""), (0.5, "black on #f7e08c"), (0.1, "black on #f2a65a"), (0.0, "white on #b3261e"))
"""Least probability and style of a token, from sure to surprising."""


MIN_WIDTH = 20
"""Columns that a text has at least, however narrow the terminal."""


def trace(
    ident: Annotated[str, typer.Argument(metavar="ID", help="A trace, group, task or generation.")],
    root: Root = None,
    run: Annotated[str | None, typer.Option(help="The run, if several have the id.")] = None,
    as_json: Json = False,
) -> None:
    """Show one attempt, or all attempts at a task: messages, calls, logprobs, rewards, uses."""
    from genenv_core.benchmarks.measuring.expected import right_answer
    from genenv_core.storage.sql.lookup import look_up

    store = existing(root)
    record = look_up(store, ident, run)
    if as_json:
        typer.echo(json_text(asdict(record)))
    else:
        _show(record, right_answer(store, record.run_id, record.facts))


def _show(record: TaskRecord, expected: str) -> None:
    """Print a record; `expected` is the right answer, as far as it is known."""
    out = console()

    def say(text: str | Text, style: str = "", *, hang: int = 0) -> None:
        whole = Text(text) if isinstance(text, str) else text
        for line in wrapped(whole, out, hang) if out.is_terminal else [whole]:
            out.print(line, style=style, soft_wrap=True)

    facts = record.facts
    others = f" (and in {', '.join(record.also_in)})" if record.also_in else ""
    say(f"task {facts['task_id']}  run {record.run_id}{others}", "bold")
    say(f"  {_joined(epoch=facts['epoch'], source=facts['source'], family=facts['family'])}")
    if record.written:
        say(
            f"\npi_env was shown (version {facts['env_policy_version']}, {_sha(record.sampled_by)})"
        )
        say(f"  {record.shown}", "cyan")
        say("and wrote")
        say(_heat_line(record.written))
    if not facts["valid"]:
        say(f"  no task: {facts['rejection']}: {facts['rejection_detail']}", "red")
        return
    if expected:
        say("\nexpected answer")
        for line in as_read(expected).splitlines():
            say(f"  {visible(line)}", "magenta")
    elif facts["source"] == TaskSource.BENCHMARK:
        say("\nexpected answer: in the benchmark's data; the verdict says how it was judged")
    if record.d_env:
        row = record.d_env
        say(
            f"\nin D_env: p_hat {row['p_hat']:.3g}, R_env {row['r_env']:.3g}, {_paid(row)}weight "
            f"{row['weight_raw']:.3g} before normalisation, {'kept' if row['kept'] else 'not kept'}"
        )
    _say_uses(say, "environment", record.trained, "weight")
    for group in record.groups:
        _show_group(say, group)
    if not record.groups:
        say(
            "\nnever attempted in training: base tasks take turns, held-out tasks are only measured"
        )
    say("")
    say(_legend())


def _paid(row: Mapping[str, Any]) -> str:
    """Return in words what pi_env was paid, '' where that is R_env, which stands beside it."""
    paid = row.get("pay")
    return "" if paid is None or paid == row["r_env"] else f"pay {paid:.3g}, "


def wrapped(text: Text, out: Console, hang: int = 0) -> list[Text]:
    """Return the lines of a text, broken between words at the width of the console.

    What continues a line begins below its text: after its indentation, or after `hang` columns.
    """
    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        indent = max(hang, len(line.plain) - len(line.plain.lstrip(" ")))
        first, rest = line[:indent], line[indent:]
        for part in rest.wrap(out, max(MIN_WIDTH, out.width - indent)) or [Text()]:
            part.rstrip()
            lines.append(first + part)
            first = Text(" " * indent)
    return lines


def _show_group(say: Any, group: GroupRecord) -> None:
    facts = group.facts
    say(f"\ngroup {facts['group_id']}", "bold")
    if "n" in facts:
        r_env = "" if facts["r_env"] is None else f", R_env {facts['r_env']:.3g}"
        say(
            f"  epoch {facts['epoch']}: solved {facts['successes']} of {facts['n']}, p_hat "
            f"{facts['p_hat']:.3g}{r_env}, reward {facts['reward_mean']:.3g} ± "
            f"{facts['reward_std']:.3g}{', no signal' if facts['zero_signal'] else ''}"
        )
    for row in group.selections:
        policy = {Policy.AGENT: "agent", Policy.ENV: "environment"}[row["update"]]
        judged = "" if row["distance"] is None else f", |p_hat - alpha| {row['distance']:.3g}"
        verdict = "kept" if row["kept"] else f"not kept: {row['reason']}"
        say(f"  {policy} update of epoch {row['epoch']}: {verdict}{judged}")
    for record in group.traces:
        _show_trace(say, record)


def _show_trace(say: Any, record: TraceRecord) -> None:
    facts = record.facts
    say(f"\ntrace {facts['trace_id']}", "bold")
    counts = _joined(
        turns=facts["turns"],
        prompt_tokens=facts["prompt_tokens"],
        response_tokens=facts["response_tokens"],
        tool_calls=facts["tool_calls"],
        finish=facts["finish_reason"],
    )
    say(f"  attempt {facts['sample_index']}  {counts}")
    say(f"  sampled by version {facts['policy_version']} of pi_agent, {_sha(record.sampled_by)}")
    if record.shown:
        say("  pi_agent was shown")
        say(f"  {visible(record.shown)}", "cyan")
    _say_messages(say, record.messages)
    if facts["error"]:
        say(f"  error: {facts['error']}", "red")
    if facts["reward"] is not None:
        verdict = "success" if facts["success"] else f"failure: {facts['failure']}"
        say(f"  reward {facts['reward']:.3g}  {verdict}", "green" if facts["success"] else "red")
    if facts["parts"]:
        say(f"  judged by the benchmark: {facts['parts']}")
    sampled = [token for token in record.tokens if token.sampled]
    total = sum(token.logprob for token in sampled)
    say(f"  logprobs: {total:.3f} over {len(sampled)} tokens")
    ends = [*(start.token for start in record.begins), len(record.tokens)]
    say(_heat_line(record.tokens[: ends[0]]))
    for start, end in zip(record.begins, ends[1:], strict=True):
        say(f"  {start.said}", "dim")
        say(_heat_line(record.tokens[start.token : end]))
    _say_uses(say, "agent", record.trained, "advantage")


def _say_messages(say: Any, messages: Sequence[Message]) -> None:
    for turn in turns(messages):
        who = f"{turn.role} {turn.name}".strip()
        for part in turn.parts:
            if isinstance(part, ToolCall):
                said, style = visible(str(part)), "magenta"
            else:
                said, style = visible(part), "dim" if turn.role == "tool" else ""
            head = f"  {who:>12}  "
            say(head + said, style, hang=len(head))
        if turn.earned:
            say(f"  {'':>12}  {visible(turn.earned)}", "dim")


def _say_uses(say: Any, policy: str, rows: Sequence[dict[str, Any]], number: str) -> None:
    for row in rows:
        say(
            f"  trained on by the {policy} update of epoch {row['epoch']} as {row['source']}: "
            f"{number} {row[number]:+.3f}, made {_sha(row['checkpoint'])}"
            f"{'' if row['published'] else ' (not published)'}",
            "cyan",
        )


def _heat_line(tokens: Sequence[Token]) -> Text:
    """Return the text with unsure tokens coloured, and bracketed with their probability."""
    line = Text("  ")
    for token in tokens:
        text = visible(token.text).replace("\n", "⏎")
        if not token.sampled:
            line.append(text, style="dim italic")
            continue
        chance = math.exp(min(0.0, token.logprob))
        style = next(style for least, style in HEAT if chance >= least)
        line.append(f"⟦{text} {chance:.0%}⟧" if style else text, style=style)
    return line


def _legend() -> Text:
    line = Text("⟦token p⟧: sampled with probability p below 90 %; ")
    line.append("below 90", style=HEAT[1][1])
    line.append(" ")
    line.append("below 50", style=HEAT[2][1])
    line.append(" ")
    line.append("below 10 %", style=HEAT[3][1])
    line.append("; ")
    line.append("observation", style="dim italic")
    return line


def _sha(digest: str | None) -> str:
    return f"checkpoint {digest[:12]}" if digest else "checkpoint unknown"


def _joined(**values: Any) -> str:
    return "  ".join(f"{name} {value}" for name, value in values.items() if value is not None)
