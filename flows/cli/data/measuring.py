"""Prints a measurement while it works: how many items are done, and how fast."""

from __future__ import annotations

from typing import Any

from rich.live import Live
from rich.text import Text

from flows.shown.tables import console
from genenv_core.config.schema import RunConfig
from schemas.enums import StageState
from tasks.stage.progress import Event, listening


class MeasureView:
    """Listens to the stage; a live line on a terminal, plain lines elsewhere, silence for JSON."""

    def __init__(self, config: RunConfig, *, quiet: bool) -> None:
        """Draw nothing yet."""
        self._config, self._quiet = config, quiet
        self._console = console()
        self._event: Event | None = None
        self._state: StageState | None = None
        self._listening = listening(self._on)
        self._live = (
            Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
            if self._console.is_terminal and not quiet
            else None
        )

    def __enter__(self) -> MeasureView:
        """Start to listen and to draw."""
        self._say(f"run {self._config.run_id}: {self._config.domain.name}")
        self._listening.__enter__()
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        """Stop."""
        if self._live:
            self._live.refresh()
            self._live.stop()
        self._listening.__exit__(*failure)

    def finish(self, seconds: float) -> None:
        """Print how it went, unless it failed."""
        if self._state is StageState.CACHED:
            self._say("reused: everything was there")
        elif self._state is StageState.COMPUTED:
            self._say(f"done in {seconds:.0f} s")

    def _on(self, event: Event) -> None:
        if event.kind == "advanced":
            self._event = event
            if event.due and not self._live:
                self._say(self._line())
        elif event.kind == "finished":
            self._state = event.state
        elif event.kind == "waiting":
            self._say(event.message)

    def _line(self) -> str:
        return self._event.words if self._event else "starting"

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, markup=False)

    def _render(self) -> Text:
        return Text(self._line(), style="cyan")
