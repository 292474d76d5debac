"""API-Bank's items and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from genenv_core.benchmarks.api_bank.loading import Gold, load_gold
from genenv_core.benchmarks.api_bank.rouge import rouge_l
from genenv_core.benchmarks.api_bank.scoring import RecordedCall, judge_call
from genenv_core.benchmarks.api_bank.state import State
from genenv_core.benchmarks.protocol import Benchmark, Composite, ItemVerdict, Ratio

MODES = {
    "match": "the first call in the text counts as the recorded one, as the official tools compare",
    "official": "the same as match, under the name that it has for other benchmarks",
    "strict": "the text is the call and nothing else, and free text equals the recorded one",
}
LOW = 0.2
"""ROUGE-L below which the official loop logs a response as a low score."""

SHOWN = 1000
"""Characters of a found call that a verdict shows."""


class ApiBank:
    """The calls and responses of one download."""

    composites: Sequence[Composite] = ()

    def __init__(self, gold: Mapping[str, Gold], state: State, digest: str) -> None:
        self.digest = digest
        self.gold = gold
        self.items: Mapping[str, str] = {item: _group(item, one) for item, one in gold.items()}
        self._state = state

    def judge(self, item: str, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on a text; anything else is wrong."""
        gold = self.gold[item]
        kind = "call" if isinstance(gold, RecordedCall) else "response"
        if not isinstance(prediction, str):
            said = type(prediction).__name__
            parts = {"kind": kind, **({"error": "no_call"} if kind == "call" else {"rouge_l": 0.0})}
            return ItemVerdict(False, reason=f"the prediction is no text but {said}", parts=parts)
        if isinstance(gold, RecordedCall):
            return self._judge_call(prediction, gold, mode)
        return _judge_response(prediction, gold, item)

    def _judge_call(self, text: str, gold: RecordedCall, mode: str) -> ItemVerdict:
        found = judge_call(text, gold, self._state, mode == "strict")
        parts = {"kind": "call", "call": found.text[:SHOWN], "error": found.error}
        named = {"missing": found.missing, "extra": found.extra, "wrong": found.wrong}
        parts |= {key: [name[:SHOWN] for name in names[:SHOWN]] for key, names in named.items()}
        right = not found.error
        details = "".join(f"; {key}: {', '.join(parts[key][:9])}" for key in named if parts[key])
        return ItemVerdict(right, float(right), found.error + details, parts)

    def measures(self, item: str, verdict: ItemVerdict) -> Mapping[str, Ratio]:
        """Return the accuracy of calls, by level and over all, or the ROUGE-L of responses."""
        ratio = (verdict.score, 1.0)
        group = self.items[item]
        return {group: ratio, "calls": ratio} if group.endswith("calls") else {group: ratio}


def _group(item: str, gold: Gold) -> str:
    kind = "calls" if isinstance(gold, RecordedCall) else "responses"
    return f"{item.partition('/')[0]} {kind}"


def _judge_response(text: str, gold: str, item: str) -> ItemVerdict:
    if item.startswith("lv3/"):
        # As the loop of level 3 does it; the loop of levels 1 and 2 rounds instead.
        score = rouge_l(text.replace("User:", "").replace("AI:", "").strip(), gold)
    else:
        score = round(rouge_l(text, gold), 4)
    valid = score >= LOW
    reason = "" if valid else f"ROUGE-L {score:.4f} is below {LOW}"
    return ItemVerdict(valid, score, reason, {"kind": "response", "rouge_l": score})


def load(data: Path) -> ApiBank:
    """Return the suite of a folder laid out as the official directory `api-bank`."""
    gold, state, digest = load_gold(data)
    return ApiBank(gold, state, digest)


BENCHMARK = Benchmark(
    "api_bank", MODES, "the text with the call [ApiName(key='value', ...)], or the response", load
)
