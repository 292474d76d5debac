"""A benchmark of another package: words to write backwards, and other words to train on."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genenv_core.benchmarks import protocol
from genenv_core.benchmarks.files import digest_of, required
from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.benchmarks.training.benchmark_domain import BenchmarkDomain, BenchmarkOptions
from genenv_core.domains.parts import distinct
from genenv_core.types import Context, JsonObject, Message, Observation, Rejected, Rejection, Said
from genenv_core.types import TaskDraft as Draft

ASKED = "Write it backwards: "


@dataclass(frozen=True)
class Word:
    """An item as a model attempts it, in one turn."""

    word: str
    tools: Sequence[JsonObject] = ()

    @property
    def messages(self) -> Sequence[Message]:
        return ({"role": "user", "content": ASKED + self.word},)

    def begin(self, seed: int) -> Word:
        return self

    def answer(self, said: Said) -> Observation:
        return Observation()  # which ends the attempt

    def prediction(self, said: Sequence[Said]) -> str:
        return said[-1].text if said else ""

    def judge(self, prediction: Any, mode: str) -> ItemVerdict:
        right = isinstance(prediction, str) and prediction.strip() == self.word[::-1]
        return ItemVerdict(right, float(right), "" if right else "not backwards")


class Words:
    """The words of a download; an item's id is its line from 0, its group short or long."""

    composites: Sequence[protocol.Composite] = ()

    def __init__(self, words: Sequence[str], digest: str) -> None:
        self.words, self.digest = {str(place): word for place, word in enumerate(words)}, digest
        self.items = {item: "long" if len(w) > 5 else "short" for item, w in self.words.items()}

    def playable(self, item: str) -> Word:
        return Word(self.words[item])

    def judge(self, item: str, prediction: Any, mode: str) -> ItemVerdict:
        return self.playable(item).judge(prediction, mode)

    def measures(self, item: str, verdict: ItemVerdict) -> Mapping[str, protocol.Ratio]:
        return {"right": (verdict.score, 1.0)}


def load(data: Path) -> Words:
    file = required(data, "words.txt")
    return Words(file.read_text(encoding="utf-8").split(), digest_of(data, [file]))


LIMITS = protocol.AttemptLimits(turns=1, turn_tokens=32, tokens=512, seconds=60)
BENCHMARK = protocol.Benchmark(
    "backwards", {"official": "the text is the word backwards"}, "a text", load, LIMITS, "right"
)


class Backwards(BenchmarkDomain[BenchmarkOptions]):
    """The same as a domain; `read` is what pi_env may write: a word of small letters."""

    benchmark, code_version = BENCHMARK, "1"

    def made(self, spec: JsonObject) -> Word:
        return Word(spec["word"])

    def base_tasks(self, seed: int, count: int, *, heldout: bool = False) -> list[Draft]:
        rng = random.Random(f"{seed} {heldout}")
        return distinct(
            count, 5, rng.choice, lambda k: _draft("".join(rng.sample("abcdef", k=k + 1))),
            heldout=heldout, domain=self.name,
        )  # fmt: skip

    def heldout_tasks(self, seed: int, count: int) -> list[Draft]:
        return self.base_tasks(seed, count, heldout=True)

    def env_messages(self, context: Context) -> list[Message]:
        return [{"role": "user", "content": f"Write a word like {context.base.program}:"}]

    def read(self, text: str) -> list[Draft | Rejected]:
        word = text.strip()
        if not (word.isascii() and word.isalpha() and word.islower()):
            return [Rejected(Rejection.UNPARSEABLE, "no word of small letters")]
        if word == word[::-1]:
            return [Rejected(Rejection.LEAKS_ANSWER, "the same backwards")]
        return [_draft(word)]


def _draft(word: str) -> Draft:
    return Draft(ASKED + word, {"word": word}, word[::-1], word, f"k{len(word)}", len(word), word)
