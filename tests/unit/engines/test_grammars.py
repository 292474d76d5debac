"""Requests with a grammar, in the transformers engine.

Invariants: what is sampled is in the grammar, whatever the model wants, in a batch and in a
session, beside rows without one; a completion ends only where its text is whole; a logprob is that
of the allowed tokens alone; a grammar that cannot be read is one line that says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import decoders

from genenv_core.domains.registry import get_domain
from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.engines.transformers.grammars import Grammars, hold
from genenv_core.errors import EngineError
from genenv_core.training.warm_start.models import seed_tokenizer
from genenv_core.types import Completion, FinishReason, Grammar, SampleRequest
from tests.mutations import mutation
from tests.unit.builders_engine import (
    EOS_ID,
    PARAMS,
    byte_tokenizer,
    spell,
    tiny_model,
    tiny_tokenizer,
    write_checkpoint,
)

GRAMMARS = "genenv_core/engines/transformers/grammars.py"
WORDS = Grammar("regex", "(ab|cd){2,3}e")
PERSON = {
    "type": "object",
    "properties": {"age": {"enum": [3, 47]}, "of": {"enum": ["a", "bc"]}},
    "required": ["age", "of"],
    "additionalProperties": False,
}
REQUESTS = [
    *(SampleRequest(spell("ab"), seed, WORDS) for seed in range(6)),
    *(SampleRequest(spell("abc"), seed) for seed in range(4)),
    *(SampleRequest(spell("abc"), seed, Grammar("json", json.dumps(PERSON))) for seed in range(3)),
    SampleRequest(spell("z"), 0, Grammar("grammar", 'root ::= "x" root | "y"')),
]

Sample = Callable[[Sequence[SampleRequest]], list[Completion]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("held") / "policy", eos_probability=0.2)


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> TransformersEngine:
    return TransformersEngine.load(checkpoint, threads=1)


@pytest.fixture(params=["batch", "session"])
def sample(engine: TransformersEngine, request: pytest.FixtureRequest) -> Sample:
    """Return a function that samples in one call, or in a session of few rows."""
    if request.param == "batch":
        return lambda requests: engine.sample(requests, PARAMS)

    def in_session(requests: Sequence[SampleRequest]) -> list[Completion]:
        session, done = engine.open_session(PARAMS), dict[int, Completion]()
        for tag, one in enumerate(requests):
            session.submit(tag, one, PARAMS.max_tokens)
        while session.computes:
            done.update(session.advance())
        return [done[tag] for tag in range(len(requests))]

    return in_session


def text_of(done: Completion) -> str:
    assert done.token_ids[-1] == EOS_ID
    return decoded(done.token_ids[:-1])


def decoded(ids: Sequence[int]) -> str:
    tokenizer: Any = tiny_tokenizer()
    return tokenizer.decode(list(ids))


@mutation(
    "a grammar is read and not held to", GRAMMARS,
    "held[row].masked_fill_(forbidden, -torch.inf)", "pass", by="[batch]",
)  # fmt: skip
@mutation(
    "a text ends before it is whole", GRAMMARS,
    "self._matcher.is_accepting()", "True", by="[batch]",
)  # fmt: skip
@mutation(
    "a grammar stays at its beginning", GRAMMARS,
    "            self._matcher.consume_token(token)", "            pass", by="[batch]",
)  # fmt: skip
@mutation(
    "rows of one grammar share its place", GRAMMARS,
    "self._compiled[grammar].deep_copy()", "self._compiled[grammar]", by="[batch]",
)  # fmt: skip
@mutation(
    "a session forgets its grammars", "genenv_core/engines/transformers/continuous.py",
    "logits = hold(self._logits, holding)", "logits = self._logits", by="[session]",
)  # fmt: skip
def test_what_is_sampled_is_in_the_grammar(sample: Sample, engine: TransformersEngine) -> None:
    done = sample(REQUESTS)
    words = [text_of(one) for one in done[:6]]
    assert all(re.fullmatch(WORDS.text, text) for text in words) and len(set(words)) > 2
    free = engine.sample([replace(one, grammar=None) for one in REQUESTS[6:10]], PARAMS)
    assert [one.token_ids for one in done[6:10]] == [one.token_ids for one in free]
    for one in done[10:13]:
        found = json.loads(text_of(one)) if one.finish_reason is FinishReason.STOP else {}
        assert not found or (found["age"] in (3, 47) and found["of"] in ("a", "bc"))
    assert re.fullmatch("x*y", text_of(done[13]))


def test_a_logprob_is_that_of_the_allowed_tokens(sample: Sample, checkpoint: Path) -> None:
    (done,) = sample([SampleRequest(spell("ab"), 1, Grammar("regex", "[xyz]"))])
    model = TransformersEngine.load(checkpoint, threads=1)._model
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*spell("ab"), done.token_ids[0]]])).logits[0]
    allowed = list(spell("xyz"))
    first = logits[1, allowed].log_softmax(-1)[allowed.index(done.token_ids[0])]
    assert done.logprobs == (pytest.approx(first.item(), abs=1e-5), 0.0)
    assert done.token_ids[1:] == (EOS_ID,)


def test_a_text_that_is_cut_short_ends_by_its_length(engine: TransformersEngine) -> None:
    (done,) = engine.sample([SampleRequest(spell("a"), 0, WORDS)], replace(PARAMS, max_tokens=2))
    assert done.finish_reason is FinishReason.LENGTH
    assert not re.fullmatch(WORDS.text, decoded(done.token_ids))


def test_rows_without_a_grammar_keep_their_logits() -> None:
    logits = torch.zeros(2, 5)
    assert hold(logits, {}) is logits


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        (Grammar("regex", "("), "of the kind regex cannot be read: .*unclosed group.*: \\($"),
        (Grammar("json", "{"), "of the kind json cannot be read: "),
        (Grammar("json", '{"type": "foo"}'), "cannot be read: Invalid type: foo"),
        (Grammar("grammar", "root ::= nope"), "cannot be read: .*'nope' not found"),
        (Grammar("regex", "é"), "cannot go on"),  # of which the vocabulary has no byte
    ],
)
def test_a_grammar_that_cannot_be_held_is_one_line(
    sample: Sample, grammar: Grammar, words: str
) -> None:
    with pytest.raises(EngineError, match=words) as error:
        sample([SampleRequest(spell("ab"), 0, grammar)])
    assert "\n" not in str(error.value)


def test_a_grammar_needs_a_tokenizer_and_an_end(engine: TransformersEngine) -> None:
    one = [SampleRequest(spell("ab"), 0, WORDS)]
    with pytest.raises(EngineError, match="a token that ends a completion"):
        engine.sample(one, replace(PARAMS, stop_token_ids=()))
    with pytest.raises(EngineError, match="needs the checkpoint's tokenizer"):
        TransformersEngine(tiny_model(), threads=1).sample(one, PARAMS)


def test_a_tokenizer_whose_bytes_are_unknown_is_refused(tmp_path: Path) -> None:
    tokenizer: Any = byte_tokenizer("")
    tokenizer.backend_tokenizer.decoder = decoders.WordPiece()
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(EngineError, match=r"does not tell: .*set generation.structured to false"):
        Grammars(tmp_path, 300)


@pytest.mark.parametrize("name", ["arithmetic", "desk", "trails"])
def test_the_embedded_tokenizers_spell_what_their_domains_allow(name: str, tmp_path: Path) -> None:
    domain: Any = get_domain(name, {})
    tokenizer: Any = seed_tokenizer(domain, 0, 0.5)
    tokenizer.save_pretrained(tmp_path)
    grammars = Grammars(tmp_path, len(tokenizer) + 3)  # a model may have more columns than tokens
    grammar = domain.env_grammar(None)
    texts = [text for _, text in domain.env_examples(0, 9, 0.5) if re.fullmatch(grammar.text, text)]
    assert len(texts) > 3
    for text in texts:
        held = grammars.begin(grammar, [tokenizer.eos_token_id])
        for token in tokenizer.encode(text):
            allowed = held.allowed()
            assert allowed[token] and not allowed[len(tokenizer) :].any()
            held.take(token)
        assert held.allowed()[tokenizer.eos_token_id]
