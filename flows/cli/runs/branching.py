"""The configuration of a branch: that of the run it comes from, or a preset, with changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flows.cli.options import check_run, existing
from genenv_core.config.branching import BranchPoint, branch_name
from genenv_core.config.load import overridden, preset_values, read_override, resolve
from genenv_core.config.schema import RunConfig


def branched(
    point: BranchPoint, source: str | None, overrides: Sequence[str], fields: Mapping[str, Any]
) -> RunConfig:
    """Return the configuration of a branch, with its name; raises ConfigError.

    Without a `source` it is that of the run that it comes from, but for `overrides` and `fields`.
    """
    from genenv_core.storage.records.runs import RunLog

    places = [text for text in overrides if read_override(text, "--set")[0] == "root"]
    values: Mapping[str, Any]
    if source is None:
        root = resolve("quickstart", overrides=places, fields={"root": fields["root"]}).root
        store = existing(root)
        check_run(store, point.run_id)
        recorded = RunLog(store, point.run_id).info().config
        values, where = {**recorded, "run_id": None, "root": root}, f"run {point.run_id}"
    else:
        values, where = preset_values(source), source
    config = overridden(values, where, overrides=overrides, fields=fields)
    existing(config.root)
    return config.model_copy(update={"run_id": branch_name(config, point)})
