"""API-Bank's items and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from genenv_core.benchmarks.api_bank.dialogues import chat
from genenv_core.benchmarks.api_bank.loading import Download, Gold, read_download, set_of
from genenv_core.benchmarks.api_bank.playing import DialogueSample, rules
from genenv_core.benchmarks.api_bank.rouge import rouge_l
from genenv_core.benchmarks.api_bank.scoring import RecordedCall, judge_call
from genenv_core.benchmarks.api_bank.state import ApiState
from genenv_core.benchmarks.api_bank.tools import schema, spelled
from genenv_core.benchmarks.protocol import AttemptLimits, Benchmark, Composite, ItemVerdict, Ratio
from genenv_core.types import Call, JsonObject

MODES = {
    "match": "the first call in the text counts as the recorded one, as the official tools compare",
    "official": "the same as match, under the name that it has for other benchmarks",
    "strict": "the text is the call alone, or the prompt's API-Request: and the call, and "
    "free text equals the recorded one",
}
LOW = 0.2
"""ROUGE-L below which the official loop logs a response as a low score."""

SHOWN = 1000
"""Characters of a found call that a verdict shows."""


class ApiBank:
    """The calls and responses of one download."""

    composites: Sequence[Composite] = ()

    def __init__(self, download: Download) -> None:
        self.digest = download.digest
        self.download = download
        self.gold: Mapping[str, Gold] = {key: one.gold for key, one in download.items.items()}
        self.items: Mapping[str, str] = {key: _group(key, one) for key, one in self.gold.items()}

    def judge(self, item: str, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on a text; anything else is wrong."""
        gold = self.gold[item]
        if isinstance(gold, RecordedCall):
            return judged_call(prediction, gold, self.download.state, mode)
        return _judge_response(prediction, gold, item)

    def playable(self, item: str) -> DialogueSample:
        """Return an item with the dialogue before it, and the tools known there."""
        one, key = self.download.items[item], set_of(item)
        kind = "call" if isinstance(one.gold, RecordedCall) else "response"
        said = rules(kind, searches=not item.startswith("lv1/"), dated=key != "lv3")
        return DialogueSample(
            [{"role": "system", "content": said}, *chat(one.before)],
            self.schemas(key, one.tools),
            kind,
            partial(self.judge, item),
        )

    def expected(self, item: str) -> str:
        """Return the recorded call as the official harness reads it, or the recorded response."""
        gold = self.gold[item]
        if isinstance(gold, str):
            return gold
        return spelled(Call(gold.tool.name, dict(gold.arguments)))

    def schemas(self, key: str, names: Sequence[str]) -> list[JsonObject]:
        """Return the tools of a set that have these names."""
        docs = self.download.docs[key]
        return [schema(docs[name]) for name in names if name in docs]

    def measures(self, item: str, verdict: ItemVerdict) -> Mapping[str, Ratio]:
        """Return the accuracy of calls, by level and over all, or the ROUGE-L of responses."""
        ratio = (verdict.score, 1.0)
        group = self.items[item]
        return {group: ratio, "calls": ratio} if group.endswith("calls") else {group: ratio}


def _group(item: str, gold: Gold) -> str:
    kind = "calls" if isinstance(gold, RecordedCall) else "responses"
    return f"{item.partition('/')[0]} {kind}"


def judged_call(prediction: Any, gold: RecordedCall, state: ApiState, mode: str) -> ItemVerdict:
    """Return the verdict on the first call of a text; anything but text is wrong."""
    if not isinstance(prediction, str):
        return _no_text(prediction, {"kind": "call", "error": "no_call"})
    found = judge_call(prediction, gold, state, mode == "strict")
    parts = {"kind": "call", "call": found.text[:SHOWN], "error": found.error}
    named = {"missing": found.missing, "extra": found.extra, "wrong": found.wrong}
    parts |= {key: [name[:SHOWN] for name in names[:SHOWN]] for key, names in named.items()}
    right = not found.error
    details = "".join(f"; {key}: {', '.join(parts[key][:9])}" for key in named if parts[key])
    return ItemVerdict(right, float(right), found.error + details, parts)


def _judge_response(prediction: Any, gold: str, item: str) -> ItemVerdict:
    if not isinstance(prediction, str):
        return _no_text(prediction, {"kind": "response", "rouge_l": 0.0})
    if item.startswith("lv3/"):
        # As in the loop of level 3; the loop of levels 1 and 2 rounds instead.
        score = rouge_l(prediction.replace("User:", "").replace("AI:", "").strip(), gold)
    else:
        score = round(rouge_l(prediction, gold), 4)
    valid = score >= LOW
    reason = "" if valid else f"ROUGE-L {score:.4f} is below {LOW}"
    return ItemVerdict(valid, score, reason, {"kind": "response", "rouge_l": score})


def _no_text(prediction: Any, parts: JsonObject) -> ItemVerdict:
    said = type(prediction).__name__
    return ItemVerdict(False, reason=f"the prediction is no text but {said}", parts=parts)


def load(data: Path) -> ApiBank:
    """Return the suite of a folder laid out as the official directory `api-bank`."""
    return ApiBank(read_download(data))


LIMITS = AttemptLimits(turns=1, turn_tokens=512, tokens=8192, seconds=600)
"""One turn; the longest dialogue before it has about 6,200 characters, its tools included."""

BENCHMARK = Benchmark(
    "api_bank",
    MODES,
    "the text with the call [ApiName(key='value', ...)], or the response",
    load,
    LIMITS,
    "calls",
)
