"""`genenv eval`: benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import ConfiguredRoot, Json, KeyEnv, ModelName, Overrides, check_output
from genenv_core.benchmarks.registry import known_benchmarks
from genenv_core.errors import ConfigError
from genenv_core.plugins import BENCHMARKS, known_names

ALL = "all"

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help=f"A benchmark: {', '.join(known_names(BENCHMARKS))}; or {ALL} of them."
    ),
]


def evaluate(
    name: Name,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the benchmark's official download; for all, the folder above "
            "theirs (default: GENENV_BENCHMARKS).",
            metavar="DIR",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A model to measure: a checkpoint folder, run:RUN or run:RUN@EPOCH, "
            "models:/NAME/VERSION in MLflow, or the URL of an OpenAI-compatible endpoint.",
        ),
    ] = None,
    model_name: ModelName = None,
    key_env: KeyEnv = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            help="Score this file in place of a model: JSON lines, each with id, key and "
            "prediction.",
        ),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="How to score, e.g. official; the default is the first.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Attempts of a model at each item.", min=1)] = 1,
    limit: Annotated[
        int | None,
        typer.Option(help="Attempt only the first N items of each category.", min=1),
    ] = None,
    set_: Overrides = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.")] = None,
    root: ConfiguredRoot = None,
    run_id: Annotated[str | None, typer.Option(help="Name of the run.")] = None,
    items: Annotated[
        Path | None, typer.Option(help="Write every verdict to this file, one JSON line each.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Write the table of all models measured in the root to this file (.md)."),
    ] = None,
    json_: Json = False,
) -> None:
    """Measure a model on a benchmark, or score predictions, as its official scorer does."""
    check_output("--items", items)
    check_output("--report", report)
    if (model is None) == (predictions is None):
        raise ConfigError("give either --model or --predictions: what should be measured")
    if predictions is not None:
        useless = {
            "--model-name": model_name, "--key-env": key_env, "--limit": limit, "--set": set_,
            "--seed": seed, "--root": None, "--run-id": run_id, "--report": report,
        }  # fmt: skip
        for option, value in useless.items():
            if value is not None:
                raise ConfigError(f"{option} does nothing beside --predictions: remove it")
        if name == ALL:
            raise ConfigError("--predictions are of one benchmark: name it, and its --data")
        if data is None:
            raise ConfigError(f"--data is missing: name the folder of {name}'s official download")
        from flows.cli.data.predictions import judge_predictions

        judge_predictions(name, data, predictions, mode, items, as_json=json_)
        return
    from flows.cli.data.measured import measure_models
    from genenv_core.benchmarks.measuring.request import MeasuringOptions

    asked = MeasuringOptions(str(model), model_name, key_env, None, mode, samples, limit)
    fields = {"seed": seed, "root": root, "run_id": run_id}
    names = known_benchmarks() if name == ALL else [name]
    if len(names) > 1 and (mode or run_id or items):
        raise ConfigError("--mode, --run-id and --items are of one benchmark: name it")
    measure_models(
        names, asked, set_ or (), fields, data=data, items=items, report=report, as_json=json_
    )
