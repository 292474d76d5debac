"""Exported pools, read by those that they are for.

Invariants: TRL's SFTTrainer learns each whole turn of the agent once and no word of anybody else;
each line of JSONL keeps the published rules of fine-tuning files; verl's rows have its columns, and
the reward function gives what the run's own scoring gives; what was left out is counted; calls in
a form of a domain's own, and their answers, are there as those of any other.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genenv_core.domains.desk import DeskDomain
from genenv_core.domains.tool_calls import SaidCall
from genenv_core.errors import DataError
from genenv_core.exchange import verl_reward
from genenv_core.exchange.pools import turns
from tests.mutations import mutation
from tests.unit.exchange.test_export import DRAFTS, exported, parquet, tables

TURNS = "genenv_core/exchange/pools/turns.py"

Message = dict[str, Any]


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def tool(text: str) -> Message:
    return {"role": "tool", "name": "ship", "content": text}


def call(name: str = "ship", number: int = 1) -> str:
    inner = {"id": number, "name": name, "arguments": {"item": "nuts", "total": number}}
    return f"<tool_call>{json.dumps(inner)}</tool_call>"


ASK = {"role": "user", "content": "Ship some nuts."}
TWO_TURNS = [ASK, said(f"First. {call()}"), tool("shipped one"), said(call()), tool("shipped two")]
TWO_CALLS = [ASK, said(call() + call(number=2)), tool("both shipped"), said("Done."), tool("end")]
CUT = [ASK, said(call()), tool("shipped"), said("and then I")]
UNREADABLE = [ASK, said("<tool_call>{ship</tool_call>"), tool("no such call"), said("Done.")]
EMPTY_ANSWER = [ASK, said(call()), tool(""), said("Done.")]
DIALOGUE = [ASK, said("How many?"), {"role": "user", "content": "Two."}, said(call()), tool("ok")]
NAMELESS = [ASK, said(call("ship it!")), tool("unknown tool"), said("Done.")]
SILENT = [ASK, said(""), tool("say something")]

# transcript, the agent's turns, why the last completion ended
PLAYED: list[tuple[list[Message], int, str]] = [
    (TWO_TURNS, 2, "stop"), (TWO_CALLS, 2, "stop"), (CUT, 2, "length"), (UNREADABLE, 2, "stop"),
    (EMPTY_ANSWER, 2, "stop"), (DIALOGUE, 1, "stop"), (NAMELESS, 2, "stop"), (SILENT, 1, "stop"),
    ([ASK], 0, "error"), ([ASK, said("cut at o")], 1, "length"),
]  # fmt: skip


def played(*attempts: tuple[list[Message], int, str]) -> dict[str, pl.DataFrame]:
    """Return tables whose D_train is these attempts, in this order."""
    found = tables()
    ids = sorted(found["d_train"]["trace_id"])[: len(attempts)]
    of = {name: dict(zip(ids, column, strict=True)) for name, column in (
        ("messages", [json.dumps(messages) for messages, _, _ in attempts]),
        ("turns", [count for _, count, _ in attempts]),
        ("finish_reason", [why for _, _, why in attempts]),
    )}  # fmt: skip
    for table, columns in (("trace_tokens", ["messages"]), ("traces", ["turns", "finish_reason"])):
        frame = found[table].filter(pl.col("trace_id").is_in(ids))
        for name in columns:
            new = pl.Series(name, [of[name][i] for i in frame["trace_id"]])
            frame = frame.with_columns(new.cast(frame.schema[name]))
        found[table] = frame
    found["d_train"] = found["d_train"].filter(pl.col("trace_id").is_in(ids))
    return found


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]


def changes(folder: Path) -> dict[str, int]:
    """Return the counts in the card of an export."""
    text = (folder / "README.md").read_text()
    words = (turns.AFTER, turns.CUT, turns.EMPTY, turns.UNSPEAKABLE, turns.ANSWERED, turns.UNREAD)
    found = {what: re.search(rf"\| {re.escape(what)} \| (\d+) \|", text) for what in words}
    return {what: int(match[1]) for what, match in found.items() if match}


def byte_model(path: Path) -> Any:
    """Return a tiny model and its tokenizer, one token a byte, with a template of our roles."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    roles = [f"<|{role}|>" for role in ("system", "user", "assistant", "tool", "end", "pad")]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: index for index, word in enumerate([*roles, *alphabet])}
    inner = Tokenizer(models.BPE(vocab=words, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(roles)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|end|>", pad_token="<|pad|>"
    )
    tokenizer.chat_template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    config = Qwen2Config(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, eos_token_id=words["<|end|>"],
        pad_token_id=words["<|pad|>"], bos_token_id=None,
    )  # fmt: skip
    return Qwen2ForCausalLM(config), tokenizer


def learned(folder: Path, work: Path) -> list[str]:
    """Return the texts that SFTTrainer, as it comes, has labels for; it trains a step too."""
    from datasets import load_dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    data = load_dataset(str(folder), split="train", cache_dir=str(work / "cache"))
    model, tokenizer = byte_model(work)
    settings = SFTConfig(
        output_dir=str(work / "out"), max_steps=1, per_device_train_batch_size=4, max_length=4096,
        use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, bf16=False,
        gradient_checkpointing=False,
    )  # fmt: skip
    trainer = SFTTrainer(model=model, args=settings, train_dataset=data, processing_class=tokenizer)
    texts = [
        tokenizer.decode([int(token) for token in row if token != -100])
        for batch in trainer.get_train_dataloader()
        for row in batch["labels"]
    ]
    trainer.train()
    return texts


@mutation(
    "a turn that was cut off is learned from", TURNS,
    "finish_reason == FinishReason.LENGTH.value", "False",
)  # fmt: skip
def test_sft_trainer_learns_the_agents_words_alone(tmp_path: Path) -> None:
    folder = exported(tmp_path, "d_train", "hf", played(*PLAYED))
    own = [f"First. {call()}", call(), call() + call(number=2), "Done.", call()]
    own += ["<tool_call>{ship</tool_call>", "Done.", call(), "Done.", call()]
    own += [call("ship it!"), "Done.", ""]
    assert sorted(learned(folder, tmp_path)) == sorted(f"{text}<|end|>" for text in own)


@pytest.mark.slow
def test_sft_trainer_learns_pi_envs_words_alone(tmp_path: Path) -> None:
    folder = exported(tmp_path, "d_env", "hf")
    texts = [f"{row[0]['content']}<|end|>" for row in parquet(folder)["completion"]]
    assert sorted(learned(folder, tmp_path)) == sorted(texts)


def test_each_turn_has_all_that_was_said_before_it(tmp_path: Path) -> None:
    rows = parquet(exported(tmp_path, "d_train", "hf", played(*PLAYED))).to_dicts()
    first = [row for row in rows if row["trace_id"] == rows[0]["trace_id"]]
    assert [(row["turn"], row["turns"]) for row in first] == [(0, 2), (1, 2)]
    assert [m["content"] for m in first[1]["prompt"]] == [m["content"] for m in TWO_TURNS[:3]]
    assert all(row["messages"] == row["prompt"] + row["completion"] for row in rows)
    assert {tool["function"]["name"] for tool in json.loads(first[0]["tools"])} >= {"ship"}


def broken_rules(line: dict[str, Any]) -> list[str]:
    """Return what a line breaks of the published rules of files for chat fine-tuning."""
    messages: Sequence[Message] = line["messages"]
    named = {entry["function"]["name"] for entry in line.get("tools", ())}
    wrong = [] if messages and messages[-1]["role"] == "assistant" else ["ends with another role"]
    waiting: list[str] = []
    for place, message in enumerate(messages):
        role, calls = message["role"], message.get("tool_calls", [])
        allowed = {"role", "content", "name", "tool_calls", "tool_call_id", "weight"}
        wrong += [f"{place}: key {key}" for key in message.keys() - allowed]
        if role not in ("system", "user", "assistant", "tool"):
            wrong.append(f"{place}: role {role}")
        if not calls and not (isinstance(message["content"], str) and message["content"]):
            wrong.append(f"{place}: no content")
        if role == "tool":
            if message["tool_call_id"] in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                wrong.append(f"{place}: answers no call")
        elif waiting:
            wrong.append(f"{place}: calls {waiting} are not answered")
        if calls and (role != "assistant" or not named):
            wrong.append(f"{place}: calls of {role}, tools {sorted(named)}")
        if message.get("weight", 0) not in (0, 1) or ("weight" in message and role != "assistant"):
            wrong.append(f"{place}: weight")
        for entry in calls:
            waiting.append(entry["id"])
            function = entry["function"]
            if entry["type"] != "function" or not re.fullmatch("[\\w-]{1,64}", function["name"]):
                wrong.append(f"{place}: name {function['name']}")
            if not isinstance(json.loads(function["arguments"]), dict):
                wrong.append(f"{place}: arguments")
    return wrong


@mutation(
    "an export for training ends with what the tool said", TURNS,
    "messages[: own[-1] + 1]", "messages",
)  # fmt: skip
def test_jsonl_keeps_the_rules_of_fine_tuning_files(tmp_path: Path) -> None:
    folder = exported(tmp_path, "d_train", "jsonl", played(*PLAYED))
    rows = lines(folder)
    assert [broken_rules(row) for row in rows] == [[]] * 6
    assert changes(folder) == {
        turns.AFTER: 5,  # of two turns, two calls, the cut turn, the dialogue, the silent turn
        turns.CUT: 2,
        turns.EMPTY: 2,
        turns.UNSPEAKABLE: 2,  # a name with a space; an empty turn
        turns.ANSWERED: 2,  # the second of two calls; an empty answer
        turns.UNREAD: 1,
    }
    unread = rows[3]["messages"][1]  # said by nobody so, and nothing to learn
    assert (unread["weight"], unread["content"]) == (0, None)
    asked = json.loads(unread["tool_calls"][0]["function"]["arguments"])
    assert asked == {"text": "<tool_call>{ship</tool_call>"}
    assert [message["role"] for row in rows for message in row["messages"][1:]].count("user") == 1
    second = rows[1]["messages"][3]
    assert second["content"] == turns.NO_ANSWER
    assert second["tool_call_id"] == rows[1]["messages"][1]["tool_calls"][1]["id"]
    assert [m.get("weight") for m in rows[5]["messages"]] == [None, 0, None, None]
    assert rows[2]["messages"][-1]["tool_calls"]  # the turn before the one that was cut


def test_the_rules_find_what_exports_once_had() -> None:
    tools = [{"type": "function", "function": {"name": "ship"}}]
    function = {"name": "ship", "arguments": "{}"}
    asked = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "a", "type": "function", "function": function},
    ]}  # fmt: skip
    answer = {"role": "tool", "tool_call_id": "a", "content": "ok"}
    assert broken_rules({"messages": [ASK, asked, answer], "tools": tools})
    assert broken_rules({"messages": [ASK, asked, said("Done.")], "tools": tools})
    assert broken_rules({"messages": [ASK, asked]})
    assert not broken_rules({"messages": [ASK, asked, answer, said("Done.")], "tools": tools})


class Own(DeskDomain):
    """Desk, whose agent writes a call as `SHIP 3 nuts`, and hears of it from the user."""

    def read_calls(self, text: str) -> list[SaidCall]:
        return [
            SaidCall(m.start(), m.end(), "ship", {"item": m[2], "total": int(m[1])})
            for m in re.finditer(r"SHIP (\d+) (\w+)", text)
        ]


OWN = [ASK, said("First SHIP 3 nuts."), {"role": "user", "content": "shipped"}, said("SHIP 2 nuts")]
OWN_AND_TOOL = [ASK, said("SHIP 3 nuts"), tool("shipped"), said("Done.")]
UNSAID = [ASK, said("3 nuts, please"), tool("shipped"), said("Done.")]  # no call that Own knows


@mutation(
    "a user's answer to a call leaves as the user's", "genenv_core/play/transcript.py",
    "        if ident in waiting:\n",
    '        if ident in waiting and message["role"] == "tool":\n',
)  # fmt: skip
@mutation(
    "others learn to write calls that cannot be read", TURNS,
    "(unread or place not in own)", "place not in own",
)  # fmt: skip
def test_calls_of_a_form_of_its_own_are_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genenv_core.exchange.pools.export.get_domain", lambda *given: Own())
    given = played(*((messages, 2, "stop") for messages in (OWN, OWN_AND_TOOL, UNSAID)))
    rows = lines(exported(tmp_path, "d_train", "jsonl", given))
    assert [broken_rules(row) for row in rows] == [[]] * 3
    for row in rows:
        assert [m["role"] for m in row["messages"]] == ["user", "assistant", "tool", "assistant"]
        assert [m.get("weight") for m in row["messages"]] == [
            *(None, 0 if row is rows[2] else None), None, None,
        ]  # fmt: skip
    first = rows[0]["messages"][1]
    assert first["content"] == "First ."
    assert json.loads(first["tool_calls"][0]["function"]["arguments"]) == {
        "item": "nuts",
        "total": 3,
    }
    folder = exported(tmp_path, "d_train", "hf", given)
    found = parquet(folder).sort("trace_id", "turn").to_dicts()
    calls = [[(c["name"], c["well_formed"], c["answer"]) for c in row["calls"]] for row in found]
    assert calls == [
        [("ship", True, "shipped")], [("ship", True, None)],
        [("ship", True, "shipped")], [],
        [("ship", None, "shipped")], [],
    ]  # fmt: skip
    assert [m["role"] for m in found[3]["prompt"]] == ["user", "assistant", "tool"]
    assert [m["content"] for m in found[1]["messages"]] == [m["content"] for m in OWN]
    assert sorted(learned(folder, tmp_path)) == sorted(
        f"{m['content']}<|end|>"
        for messages in (OWN, OWN_AND_TOOL, UNSAID)
        for m in messages
        if m["role"] == "assistant"
    )


@mutation(
    "a call that a prompt records is lost in an export", "genenv_core/exchange/pools/rows.py",
    'return canonical(message["content"], recorded) if recorded else message["content"]',
    'return message["content"]',
)  # fmt: skip
def test_calls_that_a_prompt_records_are_in_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = {"name": "ship", "arguments": {"item": "nuts"}}
    opening: list[Any] = [ASK, said("") | {"tool_calls": [{"function": function}]}, tool("ok"), ASK]
    monkeypatch.setattr(Own, "agent_messages", lambda self, draft: opening)
    monkeypatch.setattr("genenv_core.exchange.pools.export.get_domain", lambda *given: Own())
    given = played(([*opening, said("SHIP 3 nuts")], 1, "stop"))
    prompt = parquet(exported(tmp_path, "d_train", "verl", given))["prompt"][0].to_list()
    assert [m["role"] for m in prompt] == ["user", "assistant", "tool", "user"]
    assert prompt[1]["content"] == f"<tool_call>{json.dumps(function)}</tool_call>"
    assert parquet(exported(tmp_path, "d_train", "hf", given))["prompt"][0].to_list() == prompt
    (row,) = lines(exported(tmp_path, "d_train", "jsonl", given))
    assert row["messages"][2]["role"] == "tool" and not broken_rules(row)


def test_pi_envs_jsonl_keeps_the_rules(tmp_path: Path) -> None:
    rows = lines(exported(tmp_path, "d_env", "jsonl"))
    assert rows and not any(broken_rules(row) for row in rows)


def test_verl_finds_its_columns_and_the_reward(tmp_path: Path) -> None:
    rows = parquet(exported(tmp_path, "d_train", "verl")).to_dicts()
    # As verl loads a custom reward function: from a file.
    spec = importlib.util.spec_from_file_location("custom_module", str(verl_reward.__file__))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert len(rows) > 3
    for row in rows:
        truth, extra = row["reward_model"]["ground_truth"], row["extra_info"]
        assert row["prompt"][-1]["role"] == "user" and extra["index"] >= 0
        assert row["data_source"] == "genenv/desk/d_train"
        for answer, reward in ((truth, 1.0), ("I do not know.", 0.0)):
            found = module.compute_score(
                data_source=row["data_source"],
                solution_str=answer,
                ground_truth=truth,
                extra_info=extra,
            )
            assert found == reward
    assert {row["extra_info"]["prompt"] for row in rows} <= {draft.prompt for draft in DRAFTS}


def test_verl_is_told_that_pi_envs_texts_have_no_reward_there(tmp_path: Path) -> None:
    row = parquet(exported(tmp_path, "d_env", "verl")).to_dicts()[0]
    with pytest.raises(DataError, match="genenv/desk/d_env"):
        verl_reward.compute_score(row["data_source"], "x", "x", row["extra_info"])
    with pytest.raises(DataError, match="'gsm8k'"):
        verl_reward.compute_score("gsm8k", "x", "x", {})
