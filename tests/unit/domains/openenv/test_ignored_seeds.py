"""What a certificate says of a server that does not use the seed of a reset.

Invariants: where seeds are the tasks, those of a server that ignores them are found as duplicates
of each other, and those of one that uses them are not; where arguments are the tasks, a server
may ignore the seed, and nothing is said.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from genenv_core.domains.openenv import openenv
from genenv_core.play.checking.comparing import alike, beside_checks
from genenv_core.play.checking.set_flaws import SetFlaw
from tests.unit.domains.openenv.double import Sums, serving
from tests.unit.domains.openenv.test_openenv_server import SCHEMA


class Hidden(Sums):
    """One that asks for the same whatever the seed, and keeps what is right to itself."""

    def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        found = super().reset({"first": 1, "second": 1})
        self.total = self.secret(data["seed"])
        found["metadata"]["right"] = str(self.total)
        found["observation"]["said"] = "which number is it?"
        return found

    def secret(self, seed: int) -> int:
        return seed


class Deaf(Hidden):
    def secret(self, seed: int) -> int:
        return 4


@pytest.mark.parametrize(
    ("session", "reset", "found"),
    [
        (Deaf, None, {SetFlaw.DUPLICATE: 7}),
        (Hidden, None, {}),
        (Sums, SCHEMA, {}),
    ],
)
def test_seeds_that_are_ignored(
    session: type[Sums], reset: dict[str, Any] | None, found: dict[SetFlaw, int]
) -> None:
    with serving(session=session) as server:
        options = {"answer": "right", "reset": reset, "seeds": 100}
        domain = openenv({"url": server.url, **options})
        drafts = domain.base_tasks(0, 8)
        flaws = Counter(
            check.flaw
            for draft, earlier in zip(drafts, alike(domain, drafts), strict=True)
            for check in beside_checks(draft, domain, earlier)
            if not check.passed
        )
    assert flaws == found
