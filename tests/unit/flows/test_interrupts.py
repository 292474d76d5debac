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
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@mutation(
    "a command without stages says that it continues", "flows/cli/app.py",
    'last finished stage" if heeds_ends() else ""', 'last finished stage"',
)  # fmt: skip
@mutation(
    "any handler of SIGTERM is one of stages", "flows/running/signals.py",
    "return signal.getsignal(signal.SIGTERM) is _on_end",
    "return callable(signal.getsignal(signal.SIGTERM))",
)  # fmt: skip
@pytest.mark.usefixtures("handlers")
def test_only_what_plays_stages_says_that_it_continues() -> None:
    assert interrupted() == "interrupted"
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    assert interrupted() == "interrupted"
    signals.heed_ends()
    assert interrupted() == ("interrupted: the same command continues from the last finished stage")
