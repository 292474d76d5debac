"""`genenv what-if`: what another choice of the written tasks would have shown, one step ahead."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import Json, Overrides, Root, check_run, epochs_of, existing
from flows.shown.json_text import json_text

if TYPE_CHECKING:
    from genenv_core.epoch.writing.foreseeing import ForeseenEpoch

HORIZON = (
    "horizon: the attempts of one epoch; what agent and pi_env then learn from them is not in it"
)

NAMES = {
    "p_hat": "p_hat",
    "signal": "groups with both verdicts",
    "kept": "kept for pi_env",
    "r_env": "R_env",
}
"""The measures and their names for people."""


def what_if(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run of the root.")],
    set_: Overrides = None,
    epochs: Annotated[
        str | None,
        typer.Option(metavar="FIRST:LAST", help="Epochs, such as 3:8; without it the last one."),
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Foresee the epoch's p_hat, signal and R_env under other settings of the choice of tasks.

    Fields: generation.choose_by, random_share, tasks and candidates, curriculum.alpha, beta, k_min.
    """
    from genenv_core.epoch.writing.foreseeing import foresee
    from genenv_core.evidence.foreseen import logged_epochs, other_rule, recorded_config

    within = epochs_of(epochs)
    store = existing(root)
    check_run(store, run)
    config = recorded_config(store, run)
    other = other_rule(config, set_ or ())
    found = [foresee(logged, other) for logged in logged_epochs(store, config, within)]
    if as_json:
        values: dict[str, Any] = {"run": run, "set": set_, "horizon": HORIZON.partition(": ")[2]}
        print(json_text({**values, "epochs": [asdict(one) for one in found]}))
        return
    for epoch in found:
        _show(epoch)
    typer.echo(HORIZON)


def _show(found: ForeseenEpoch) -> None:
    from flows.shown.tables import console, plain_table

    others = found.chosen - found.shared
    typer.echo(
        f"epoch {found.epoch}: of {found.written} tasks written {found.attempted} were attempted, "
        f"{found.by_lot} of them by lot; the other rule attempts {found.chosen}, {others} of them "
        f"unseen; {found.support:.0%} had a chance under the played rule"
    )
    table = plain_table()
    table.add_column("mean of tasks")
    for title in ("played", "foreseen", "95% interval"):
        table.add_column(title, justify="right")
    for one in found.measures:
        mean = one.foreseen
        interval = f"[{mean.low:.3f}, {mean.high:.3f}]"
        row = (f"{one.played:.3f}", f"{mean.value:.3f}", interval)
        table.add_row(NAMES[one.measure], *row)
    console().print(table, markup=False)
