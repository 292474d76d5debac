"""Prints a run while it works: the stages at work, and a table of epochs that grows."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from flows.shown.json_text import json_text
from flows.shown.tables import (
    SEVERITY_STYLES,
    console,
    epoch_cells,
    epoch_table,
    measured_line,
)
from genenv_core.addresses import at_root
from genenv_core.config.branching import BranchPoint
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import FIRST, LAST, MEASURES, WARM
from genenv_core.config.until import Until
from genenv_core.epoch.reached import first_texts_line, warm_start_lines
from genenv_core.epoch.trouble import troubles
from genenv_core.errors import GenenvError
from genenv_core.report.fixed_sets import FIXED_SETS, FixedSet
from genenv_core.storage.store.opening import home_of, open_once
from schemas.enums import StageState
from tasks.stage.progress import Event, listening

if TYPE_CHECKING:
    from genenv_core.report.outcome import Outcome


class RunView:
    """Listens to stages; a live display on a terminal, plain lines elsewhere, silence for JSON."""

    def __init__(self, config: RunConfig, *, quiet: bool, point: BranchPoint | None = None) -> None:
        self._config, self._point = config, point
        # A directory is shown as the user wrote it.
        self._home = home_of(config.root) if "://" in config.root else config.root
        self._quiet = quiet
        self._console = console()
        self._running: dict[tuple[int, str], tuple[dict[str, Event], float]] = {}
        self._start: dict[str, Any] = {}
        self._epochs: dict[int, dict[str, Any]] = {}
        self._counts = Counter[StageState | None]()
        self._epoch_counts = defaultdict[int, Counter[StageState | None]](Counter)
        self._began: dict[int, float] = {}
        self._measured: list[dict[str, Any]] = []
        self._stopped: Event | None = None
        self._listening = listening(self._on)
        self._live = (
            Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
            if self._console.is_terminal and not quiet
            else None
        )

    def warn(self, text: str) -> None:
        """Print a warning above the table."""
        self.note(f"warning: {escape(text)}", "bold yellow")

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
            if self._point:
                self._console.print(self._point.words, markup=False)
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

    def finish(self, start_s: float, run_s: float, until: Until | None = None) -> None:
        """Print where everything is and what to do next."""
        config, outcome = self._config, self._outcome()
        if self._quiet:
            from tasks.tracking.track import not_logged

            rows = [self._epochs[number] for number in sorted(self._epochs)]
            found: dict[str, Any] = {"run_id": config.run_id, "root": config.root, "epochs": rows}
            if outcome:
                found |= outcome.values
            if self._point:
                found["branch"] = self._point.model_dump()
            if until:
                found["until"] = until.model_dump()
            if missing := not_logged(config):
                found["not_logged"] = missing
            found["status"] = "stopped" if self._stopped else "ended" if until else "done"
            if self._stopped:
                found["stopped"] = {**self._stopped.facts, "message": self._stopped.message}
            if self._measured:
                found["measured"] = self._measured
            print(json_text(found))
            return
        say = self._console.print
        how = "[bold yellow]stopped[/]" if self._stopped else "[bold green]done[/]"
        say(
            f"\n{how} in {run_s:.0f} s (and {start_s:.0f} s to start): "
            f"{self._counts[StageState.COMPUTED]} stages computed, "
            f"{self._counts[StageState.CACHED]} cached"
        )
        for line in outcome.lines if outcome else ():
            say(escape(line), soft_wrap=True)
        for one in outcome.recent if outcome else ():
            style = SEVERITY_STYLES[one.severity]
            say(f"{one.severity}: {escape(one.line)}", style=style, soft_wrap=True)
        root = escape(at_root(config.root))
        if self._stopped:
            say(f"{escape(self._stopped.message)}; go on with a higher limit:")
            say(f"  [bold]{escape(str(self._stopped.facts['go_on']))}[/]", soft_wrap=True)
        elif until:
            say(
                f"ended after {until}, as asked; go on with: "
                f"[bold]genenv resume {config.run_id}{root}[/]"
            )
        say(f"\neverything is in [bold]{escape(config.root)}[/]; next:")
        say(f"  genenv status {config.run_id}{root}")
        say(f"  genenv view{root}")
        say(f"  genenv report {config.run_id}{root}")
        say(f'  genenv sql "SELECT epoch, p_hat, heldout_success FROM epochs ORDER BY 1"{root}')
        if tracked := self._tracked(root):
            say(tracked)

    def _outcome(self) -> Outcome | None:
        """Return what came out and what is wrong, None before an epoch has ended."""
        if not self._epochs:
            return None
        from genenv_core.report.outcome import outcome_of_run  # loads DuckDB

        try:
            return outcome_of_run(open_once(self._config.root), str(self._config.run_id))
        except GenenvError as error:  # the run has ended all the same
            self.note(f"what came out is not known: {escape(str(error))}")
            return None

    def _tracked(self, root: str) -> str:
        """Return how to see what MLflow has of the run, or to bring it what it lacks; '' for no.

        It is markup, and so is `root`, the option that names the root.
        """
        from tasks.tracking.client import is_remote, shown, tracking_uri
        from tasks.tracking.database import database_of
        from tasks.tracking.news import listed
        from tasks.tracking.track import not_logged

        config, home = self._config, home_of(self._config.root)
        uri = tracking_uri(config, home)
        if not config.tracking.enabled:
            return ""
        if missing := not_logged(config):
            return (
                f"  genenv resume {config.run_id}{root}\n    logs {listed(missing)} to MLflow at "
                f"{escape(shown(uri))} once it is back: it was away"
            )
        if is_remote(uri):
            return f"  metrics and model versions: {escape(shown(uri))}"
        if uri != database_of(home):
            return f"  metrics and model versions: MLflow's database {escape(shown(uri))}"
        if not (home / "mlflow" / "mlflow.db").exists():  # the run ended before it had an epoch
            return ""
        return (
            f"  mlflow ui --backend-store-uri sqlite:///{escape(str(self._home))}/mlflow/mlflow.db"
        )

    def _on(self, event: Event) -> None:
        if event.kind == "limit":
            self._limit(event)
            return
        for domain, tasks in event.facts.get(FIXED_SETS, {}).items():
            self._line(FixedSet(domain, tasks).line)
        key = (event.epoch, event.stage)
        if event.kind == "started":
            self._running[key] = ({"": event}, time.monotonic())
            self._began.setdefault(event.epoch, time.monotonic())
        elif event.kind in ("waiting", "advanced"):
            parts, since = self._running.get(key, ({}, time.monotonic()))
            if event.part:  # the stage has more to say than its own line
                parts = {part: event for part, event in parts.items() if part}
            self._running[key] = ({**parts, event.part: event}, since)
        elif event.kind in ("finished", "failed"):
            self._running.pop(key, None)
        if event.kind == "finished":
            self._counts[event.state] += 1
            self._epoch_counts[event.epoch][event.state] += 1
            if event.stage == LAST:
                self._publish(event)
            elif event.stage == MEASURES:
                self._measured.append(event.facts)
                self.note(f"measured {measured_line(event.facts)}")
            elif event.epoch == 0 and not self._live:
                self._line(f"{event.stage} {event.state} in {event.seconds:.1f} s")
            if skipped := event.facts.get("skipped_rows"):
                log = escape(f"{self._home}/runs/{self._config.run_id}/run.log")
                self.note(
                    f"skipped rows of data.base_file: {skipped}, all are in {log}; the first:"
                )
                for line in event.facts["skipped_first"]:
                    self.note(f"  {escape(line)}")
            if event.stage in (FIRST, WARM):  # the second also has what the first one said
                before, self._start = warm_start_lines(self._start), event.facts
                for line in warm_start_lines(event.facts):
                    if line not in before:
                        self._line(line)
            for trouble in troubles(event.facts):
                self.warn(trouble)
        if event.due and not self._live:
            self._line(f"{event.stage} of epoch {event.epoch}: {event.words}")
        if event.kind in ("tracking", "root", "server"):
            self.note(escape(event.message), "bold yellow")
        if event.kind == "disk":
            self.note(escape(event.message))
        if event.kind == "waiting" and not self._live:
            self._line(f"{event.stage} of epoch {event.epoch}: {event.message}")
        if event.kind == "failed" and not self._live:
            self._line(f"{event.stage} of epoch {event.epoch} {event.state}: {event.message}")

    def _limit(self, event: Event) -> None:
        """Keep why the run stops for its last lines; print a limit reached before work at once."""
        if event.facts:
            self._stopped = event
        else:
            self.note(escape(event.message), "bold yellow")

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
        if event.epoch == 1 and (line := first_texts_line(self._start, row)):
            self._line(line)

    def _line(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, markup=False, soft_wrap=True)

    def _render(self) -> Group:
        parts: list[Any] = []
        if self._epochs:
            parts.append(epoch_table([self._epochs[number] for number in sorted(self._epochs)]))
        grid = Table.grid(padding=(0, 2))
        for events, since in list(self._running.values()):
            for event in events.values():
                grid.add_row(
                    Text("▸", style="cyan"),
                    "measuring"
                    if event.stage == MEASURES
                    else f"epoch {event.epoch}/{self._config.epochs}",
                    event.stage,
                    f"{time.monotonic() - since:5.1f} s",
                    event.words if event.kind == "advanced" else event.message,
                )
        parts.append(grid)
        return Group(*parts)
