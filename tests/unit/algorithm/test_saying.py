"""Whether a text says a part: whole words, numbers by value, one word as it is spelled."""

from __future__ import annotations

import pytest

from genenv_core.domains.kit.texts.saying import holds
from tests.mutations import mutation

SAYING = "genenv_core/domains/kit/texts/saying.py"


@mutation(
    "the letter of a choice is a leak", SAYING,
    "return len(words.split()) > 1 and words in _words(text)", "return words in _words(text)",
)  # fmt: skip
@mutation(
    "a number is said by its digits", SAYING,
    "if (number := _NUMBER.fullmatch(part.strip())) is not None:",
    "if (number := _NUMBER.fullmatch(part)) is not None and not part:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("text", "part", "said"),
    [
        ("7 bolts", "7", True),
        ("17 bolts", "7", False),  # another number
        ("70 bolts", "7", False),
        ("the city of Paris.", "Paris", True),
        ("a bolt", "A", False),  # one word: the case counts, as in the letter of a choice
        ("Parisian bolts", "Paris", False),
        ("say 3.5 aloud", "3.5", True),
        ("say 315 aloud", "3.5", False),  # the dot is no wildcard
        ("call<x>now", "<x>", True),  # edges that are no letters need no blank beside them
        ("They say: IT IS SEVEN!", "it is seven", True),
        ("it is seventy", "it is seven", False),
        ("bolts", "", False),  # no ground truth, nothing to leak
        ("bolts", "...", False),
        ("they have 1,000.0 bolts", "1000", True),
        ("they have 1,0000 bolts", "1", False),
        ("it is -7 out there", "7", False),
        ("it is 7 out there", "-7", False),
        ("version 1.7.3", "1.7", False),
        ("bolt7", "7", False),
        ("it costs 7.", "7.00", True),
    ],
)
def test_a_part_is_said_as_whole_words(text: str, part: str, said: bool) -> None:
    assert holds(text, part) is said
