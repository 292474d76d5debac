"""`genenv trace` of attempts whose conversation began anew, as text and for machines.

Invariants: both have each sampled token once, in order, with its probability; the prompts with
which the conversation began anew stand among them, and messages are marked where they begin.
"""

from __future__ import annotations

import json
import math
import re

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from genenv_core.hiding import visible
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_sequences import ForgetfulRoot, forgetful_root

LOOKUP = "genenv_core/storage/sql/lookup.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ForgetfulRoot:
    return forgetful_root(tmp_path_factory.mktemp("sequences") / "root")


def said(made: ForgetfulRoot, ident: str, *options: str) -> str:
    done = CliRunner().invoke(app, ["trace", ident, "--root", str(made.store.root), *options])
    assert done.exit_code == 0, done.output
    return done.stdout


@mutation(
    "a trace has the tokens of its first sequence alone", LOOKUP,
    'for one in further.get(row["trace_id"], [])', "for one in []", by="[2]",
)  # fmt: skip
@mutation(
    "a sequence begins at the end of its prompt", LOOKUP,
    "SequenceStart(len(tokens), one", "SequenceStart(len(tokens) + len(one['prompt_ids']), one",
    by="[2]",
)  # fmt: skip
@mutation(
    "a trace does not say where a sequence begins", "flows/cli/runs/trace.py",
    'say(f"  {start.said}", "dim")', "pass", by="[2]",
)  # fmt: skip
@pytest.mark.parametrize("place", some(range(3), (2,)))
def test_text_and_json_have_each_sampled_token_once(place: int, made: ForgetfulRoot) -> None:
    kept = made.kept[place]
    logprobs = [one for _, completion in kept for one in completion.logprobs]
    letters = [
        "<|im_end|>" if token == completion.token_ids[-1] else made.chat.decode([token])
        for _, completion in kept
        for token in completion.token_ids
    ]
    text = said(made, made.traces[place])
    shown = re.findall(r"⟦(.*?) (\d+)%⟧", text, re.DOTALL)
    assert shown == [
        (visible(letter), f"{math.exp(p):.0%}"[:-1])
        for letter, p in zip(letters, logprobs, strict=True)
    ]
    assert f"over {len(letters)} tokens" in text

    (group,) = json.loads(said(made, made.traces[place], "--json"))["groups"]
    (trace,) = group["traces"]
    sampled = [token for token in trace["tokens"] if token["sampled"]]
    assert [token["text"] for token in sampled] == letters
    assert [token["logprob"] for token in sampled] == logprobs
    read = "".join(token["text"] for token in trace["tokens"] if not token["sampled"])
    begun = [message["content"] for message in trace["messages"] if message.get("anew")]
    assert len(begun) == (3, 1, 2)[place]
    assert all(read.count(prompt) == 1 for prompt in map(ended, begun))
    assert text.count("user anew") == len(begun)
    assert [start["sequence"] for start in trace["begins"]] == [*range(1, 1 + len(begun))]
    for start, prompt in zip(trace["begins"], begun, strict=True):
        behind = "".join(token["text"] for token in trace["tokens"][start["token"] :])
        assert behind.partition(ended(prompt))[1] and not trace["tokens"][start["token"]]["sampled"]
        before = trace["tokens"][start["token"] - 1]
        assert before["text"] == "<|im_end|>" and before["sampled"]
        assert f"\n  {start['said']}\n" in text
        assert start["said"].startswith(
            f"Sequence {start['sequence']} begins with a prompt at turn {start['turn']}"
        )


def ended(prompt: str) -> str:
    """Return a prompt with what ends it: one may begin with another one's words."""
    return f"{prompt}<|im_end|>"
