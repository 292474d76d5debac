"""Makes names from syllables: of people, towns and rivers that do not exist."""

from __future__ import annotations

import random
from collections.abc import Sequence

_ONSETS = ("b", "br", "d", "dr", "f", "g", "gr", "h", "k", "l", "m", "n", "p", "qu", "r", "s")
_ENDS = ("dal", "fen", "lor", "mar", "nev", "rath", "sel", "tor", "vek", "wyn", "zan", "bran")
_TOWN_ENDS = ("burg", "ford", "haven", "mere", "moor", "stead", "wick", "holm")
_RIVER_ENDS = ("a", "ine", "une")


def word(rng: random.Random, ends: Sequence[str] = _ENDS) -> str:
    """Return a name of three syllables."""
    return (_syllable(rng) + _syllable(rng) + rng.choice(ends)).capitalize()


def person(rng: random.Random) -> str:
    """Return a first and a last name."""
    return f"{(_syllable(rng) + rng.choice(_ENDS)).capitalize()} {word(rng)}"


def town(rng: random.Random) -> str:
    """Return a town's name."""
    return word(rng, _TOWN_ENDS)


def river(rng: random.Random) -> str:
    """Return a river's name."""
    return word(rng, _RIVER_ENDS)


def _syllable(rng: random.Random) -> str:
    return rng.choice(_ONSETS) + rng.choice("aeiou")
