"""Whether a text says some words.

Invariant: `says` answers as the pattern of whole words does, for every text and words.
"""

from __future__ import annotations

import re
from itertools import product

import pytest

from genenv_core.domains.benchmarks.words import says
from tests.mutations import mutation

WORDS = "genenv_core/domains/benchmarks/words.py"
SPELLED = ["".join(letters) for size in range(4) for letters in product("aé1_ .²\n", repeat=size)]


@mutation(
    "words need not begin", WORDS, "if not (_of_word(text[start - 1 : start]) or ", "if not ("
)
@mutation("words need not end", WORDS, " or _of_word(text[end : end + 1])", "")
@mutation("words are looked for once", WORDS, "start = text.find(words, start + 1)", "break")
@mutation("_ is between words", WORDS, ' or letter == "_"', "")
@pytest.mark.parametrize("words", ["", "a", "é", "1", "_", ".", "aa", "a ", ".a", "a.a", "²"])
def test_words_are_said_where_the_pattern_of_whole_words_is_found(words: str) -> None:
    pattern = re.compile(rf"(?<!\w){re.escape(words)}(?!\w)")
    assert [t for t in SPELLED if says(t, words)] == [t for t in SPELLED if pattern.search(t)]
