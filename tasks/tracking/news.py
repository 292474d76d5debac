"""Prints once that a tracking server is away, and once that it is back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tasks.stage.progress import Event, emit

_away: set[tuple[str, str]] = set()
"""(root, run id) for which the terminal shows that the server is away."""


def begin(run: tuple[str, str]) -> None:
    """Forget what an earlier command of this process printed about a run."""
    _away.discard(run)


def tell(
    run: tuple[str, str], epoch: int, server: str, away: str | None, missed: Sequence[int]
) -> None:
    """Print that the server is away or back, unless this command has printed it already."""
    if away is not None and run not in _away:
        _away.add(run)
        text = f"MLflow at {server}: {away}; the run goes on, and is logged there when it is back"
        emit(Event("tracking", epoch=epoch, message=text))
    elif away is None and run in _away:
        _away.remove(run)
        text = f"MLflow at {server} is back: {listed(missed)} logged"
        emit(Event("tracking", epoch=epoch, message=text))


def listed(epochs: Iterable[int]) -> str:
    """Return epochs in words."""
    numbers = sorted(epochs)
    return f"epoch{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
