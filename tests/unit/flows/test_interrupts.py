"""What a command says after Ctrl-C.

Invariant: that the same command continues is said by those commands alone that play stages.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from flows.cli.app import interrupted
from flows.running import signals
from tests.mutations import mutation


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("flows.running.signals._heeded", False)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@mutation(
    "a command without stages says that it continues", "flows/cli/app.py",
    "{on if continues() else ''}", "{on}",
)  # fmt: skip
@mutation(
    "a command with stages does not say that it continues", "flows/running/signals.py",
    "_came, _heeded = None, True", "_came, _heeded = None, False",
)  # fmt: skip
@pytest.mark.usefixtures("handlers")
def test_only_what_plays_stages_says_that_it_continues() -> None:
    assert interrupted() == "interrupted"
    signals.heed_ends()
    assert interrupted() == ("interrupted: the same command continues from the last finished stage")
