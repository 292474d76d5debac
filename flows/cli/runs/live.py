"""What a person sees while a run works: the stages at work, and a table of epochs that grows."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from flows.cli.tables import console, epoch_cells, epoch_table
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import LAST
from genenv_core.storage.store.opening import home_of
from schemas.enums import StageState
from tasks.stage.progress import Event, listening


class RunView:
    """Listens to stages; a live display on a terminal, plain lines elsewhere, silence for JSON."""

    def __init__(self, config: RunConfig, *, quiet: bool) -> None:
        self._config = config
        # A directory is shown as the user wrote it.
        self._home = home_of(config.root) if "://" in config.root else config.root
        self._quiet = quiet
        self._console = console()
        self._running: dict[tuple[int, str], tuple[Event, float]] = {}
        self._epochs: dict[int, dict[str, Any]] = {}
        self._counts = Counter[StageState | None]()
        self._epoch_counts = defaultdict[int, Counter[StageState | None]](Counter)
        self._began: dict[int, float] = {}
        self._listening = listening(self._on)
        self._live = (
            Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
            if self._console.is_terminal and not quiet
            else None
        )

    def note(self, text: str, style: str = "dim") -> None:
        """Print one line, unless silent."""
        if not self._quiet:
            self._console.print(f"[{style}]{text}[/]")

    def __enter__(self) -> RunView:
        """Start to listen and to draw."""
        if not self._quiet:
            self._console.print(
                f"run [bold]{self._config.run_id}[/]  arm {self._config.arm.value}, "
                f"{self._config.epochs} epochs, seed {self._config.seed}"
            )
        self._listening.__enter__()
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        """Stop; the table stays on the screen."""
        if self._live:
            self._running.clear()
            self._live.refresh()
            self._live.stop()
        self._listening.__exit__(*failure)

    def finish(self, start_s: float, run_s: float) -> None:
        """Print where everything is and what to do next."""
        config = self._config
        if self._quiet:
            rows = [self._epochs[number] for number in sorted(self._epochs)]
            print(json.dumps({"run_id": config.run_id, "root": config.root, "epochs": rows}))
            return
        say = self._console.print
        say(
            f"\n[bold green]done[/] in {run_s:.0f} s (and {start_s:.0f} s to start): "
            f"{self._counts[StageState.COMPUTED]} stages computed, "
            f"{self._counts[StageState.CACHED]} cached"
        )
        last = self._epochs.get(config.epochs)
        first = self._epochs.get(0)
        if last and first:
            say(
                f"test success {first['heldout_success']:.3f} -> "
                f"{last['heldout_success']:.3f} (sampled)"
            )
        root = "" if config.root == "./genenv-data" else f" --root {config.root}"
        say(f"\neverything is in [bold]{config.root}[/]; next:")
        say(f"  genenv status {config.run_id}{root}")
        say(f'  genenv sql "SELECT epoch, p_hat, heldout_success FROM epochs ORDER BY 1"{root}')
        if config.tracking.enabled and config.tracking.uri is None:
            say(f"  mlflow ui --backend-store-uri sqlite:///{self._home}/mlflow/mlflow.db")

    def _on(self, event: Event) -> None:
        key = (event.epoch, event.stage)
        if event.kind == "started":
            self._running[key] = (event, time.monotonic())
            self._began.setdefault(event.epoch, time.monotonic())
        elif event.kind in ("waiting", "advanced"):
            since = self._running.get(key, (event, time.monotonic()))[1]
            self._running[key] = (event, since)
        elif event.kind in ("finished", "failed"):
            self._running.pop(key, None)
        if event.kind == "finished":
            self._counts[event.state] += 1
            self._epoch_counts[event.epoch][event.state] += 1
            if event.stage == LAST:
                self._publish(event)
            elif event.epoch == 0 and not self._live:
                self._line(f"{event.stage} {event.state} in {event.seconds:.1f} s")
            if skipped := event.facts.get("skipped_rows"):
                log = f"{self._home}/runs/{self._config.run_id}/run.log"
                self.note(
                    f"skipped rows of data.base_file: {skipped}, all are in {log}; the first:"
                )
                for line in event.facts["skipped_first"]:
                    self.note(f"  {escape(line)}")
            if no_task := event.facts.get("no_task"):
                self.note(f"warning: {escape(no_task)}", "bold yellow")
        if event.kind == "waiting" and not self._live:
            self._line(f"{event.stage} of epoch {event.epoch}: {event.message}")
        if event.kind == "failed" and not self._live:
            self._line(f"{event.stage} of epoch {event.epoch} {event.state}: {event.message}")

    def _publish(self, event: Event) -> None:
        row = dict(event.facts["summary"])
        row["epoch"] = event.epoch
        row["gates"] = event.facts["gates"]
        row["seconds"] = time.monotonic() - self._began[event.epoch]
        row["cached"] = self._epoch_counts[event.epoch][StageState.COMPUTED] == 0
        self._epochs[event.epoch] = row
        if not self._live:
            cells = epoch_cells(row)
            self._line("  ".join(f"{name} {value}" for name, value in cells.items() if value))

    def _line(self, text: str) -> None:
        if not self._quiet:
            print(text, flush=True)

    def _render(self) -> Group:
        parts: list[Any] = []
        if self._epochs:
            parts.append(epoch_table([self._epochs[number] for number in sorted(self._epochs)]))
        grid = Table.grid(padding=(0, 2))
        for event, since in list(self._running.values()):
            passed = time.monotonic() - since
            done = event.message
            if event.kind == "advanced":
                done = f"{event.done}/{event.total} {event.unit}"
                if event.done and passed > 1:
                    done += f"  {event.done / passed:.1f}/s"
            grid.add_row(
                Text("▸", style="cyan"),
                f"epoch {event.epoch}/{self._config.epochs}",
                event.stage,
                f"{passed:5.1f} s",
                done,
            )
        parts.append(grid)
        return Group(*parts)
