"""Repairs commands of people and models, so that a game knows them.

Games made before alfworld 0.4 say `put X in/on Y`, later ones `move X to Y`. The walkthroughs of
some official games name objects by their ids in the game file. A known command stays as it is, and
so does one that no repair helps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

_PLACED = re.compile(r"(?:put (.+?) (?:in/on|in|on)|move (.+?) to) (.+)")
_FORMS = ("move {} to {}", "put {} in/on {}", "put {} in {}", "put {} on {}")


def normalized(command: str) -> str:
    """Return a command in lower case with one space between words."""
    return " ".join(command.lower().split())


def repaired(command: str, admissible: Sequence[str], names: Mapping[str, str]) -> str:
    """Return the admissible command that a command means; without one, the command as it is.

    `names` are the objects' names by id. Space around a command is no part of it.
    """
    known = {normalized(one): one for one in admissible}
    for meant in _meant(normalized(command), names):
        if meant in known:
            return known[meant]
    return command.strip()


def _meant(command: str, names: Mapping[str, str]) -> Iterator[str]:
    yield command
    by_id = {normalized(name): shown for name, shown in names.items()}
    named = normalized(" ".join(by_id.get(word, word) for word in command.split()))
    yield named
    placed = _PLACED.fullmatch(named)
    if placed:
        what, where = placed[1] or placed[2], placed[3]
        yield from (form.format(what, where) for form in _FORMS)
