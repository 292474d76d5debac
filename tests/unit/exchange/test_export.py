"""Exported pools.

Invariants: an export loads with Hugging Face datasets and passes TRL's own format checks; every
selected row is there once, for any number of chunks; filters filter, and those that would do
nothing are refused; an imported export gives the same tasks; a folder is whole or absent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.cli.app import app
from genenv_core.config.load import dump, resolve
from genenv_core.domains.desk import DeskDomain
from genenv_core.errors import ConfigError, QueryError
from genenv_core.exchange.base_data import read_base
from genenv_core.exchange.environments.playing import DRAFT
from genenv_core.exchange.pools import rows as exchange_rows
from genenv_core.exchange.pools.export import PoolSelection, export
from genenv_core.storage.records.parquet import to_parquet
from genenv_core.storage.sql.catalog import RunSource, connect
from genenv_core.types import TaskDraft
from tests.mutations import mutation
from tests.unit.builders_tables import world

DRAFTS = DeskDomain().base_tasks(3, 60)
HISTORY = ("stage_runs", "runs")


def tables() -> dict[str, pl.DataFrame]:
    """Return the small world with real tasks of desk and transcripts of attempts at them."""
    return dict(_tables())


@cache
def _tables() -> dict[str, pl.DataFrame]:
    found = with_drafts(world(), DRAFTS)
    by_id = {row["task_id"]: row for row in found["tasks"].iter_rows(named=True)}
    texts = [
        json.dumps(
            [
                {"role": "user", "content": by_id[task]["prompt"]},
                {"role": "assistant", "content": by_id[task]["ground_truth"]},
                {"role": "tool", "name": "ship", "content": "recorded"},
            ]
        )
        for task in found["traces"]["task_id"]
    ]
    found["trace_tokens"] = found["trace_tokens"].with_columns(messages=pl.Series(texts))
    config = json.dumps(dump(resolve("tiny")))
    found["runs"] = found["runs"].with_columns(config=pl.lit(config))
    return found


def with_drafts(
    given: dict[str, pl.DataFrame], drafts: Iterable[TaskDraft]
) -> dict[str, pl.DataFrame]:
    """Return tables whose valid tasks are these drafts, in order; there are enough of them."""
    waiting = iter(drafts)
    rows: list[dict[str, Any]] = []
    for row in given["tasks"].iter_rows(named=True):
        if row["valid"]:
            draft = next(waiting)
            row |= {name: getattr(draft, name) for name in DRAFT}
            row["spec"] = json.dumps(draft.spec)
        rows.append(row)
    return given | {"tasks": pl.DataFrame(rows, schema=given["tasks"].schema)}


def stored(folder: Path, given: dict[str, pl.DataFrame]) -> RunSource:
    """Write tables into a folder and return them as those of a run."""
    folder.mkdir(exist_ok=True)
    files: dict[str, list[str]] = {}
    for name in given.keys() - set(HISTORY):
        (folder / f"{name}.parquet").write_bytes(to_parquet(name, given[name]))
        files[name] = [str(folder / f"{name}.parquet")]
    return RunSource("run-a", "genenv", files, {name: given[name] for name in HISTORY})


def exported(
    folder: Path,
    pool: Any,
    format_: Any,
    given: dict[str, pl.DataFrame] | None = None,
    **selection: Any,
) -> Path:
    """Return the folder that a pool of these tables was exported to; see `Exported` for counts."""
    out = folder / f"{pool}-{format_}"
    with connect([stored(folder / "tables", given or tables())]) as con:
        export(con, "run-a", pool, format_, out, PoolSelection(**selection))
    return out


def parquet(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "data" / "*.parquet")


@pytest.mark.parametrize("pool", ["d_train", "d_env"])
def test_datasets_and_trl_read_it(tmp_path: Path, pool: str) -> None:
    from datasets import load_dataset
    from trl.data_utils import is_conversational

    folder = exported(tmp_path, pool, "hf")
    loaded = load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    first = loaded[0]
    assert is_conversational({"messages": first["messages"]})
    assert is_conversational({"prompt": first["prompt"], "completion": first["completion"]})
    assert first["messages"] == first["prompt"] + first["completion"]
    assert [m["role"] for m in first["prompt"]] == ["user"]
    assert first["completion"][0]["role"] == "assistant"
    verl = load_dataset(
        "parquet",
        data_files=str(exported(tmp_path, pool, "verl") / "data" / "*.parquet"),
        split="train",
        cache_dir=str(tmp_path / "cache"),
    )
    assert set(verl[0]) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
    assert is_conversational({"prompt": verl[0]["prompt"]})


def test_every_row_once_however_many_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_rows, "CHUNK", 3)
    monkeypatch.setattr("genenv_core.exchange.pools.export.SHARD_ROWS", 7)
    folder = exported(tmp_path, "d_train", "hf")
    assert len(list((folder / "data").iterdir())) > 2
    assert parquet(folder)["trace_id"].to_list() == sorted(tables()["d_train"]["trace_id"])
    assert parquet(folder)["turn"].unique().to_list() == [0]
    rows = (exported(tmp_path, "d_env", "jsonl") / "train.jsonl").read_text().splitlines()
    assert len(rows) == tables()["d_env"].height


def test_filters(tmp_path: Path) -> None:
    rows = parquet(exported(tmp_path, "d_train", "hf", epochs=(2, 2), min_reward=1.0))
    assert rows["epoch"].unique().to_list() == [2]
    assert rows["success"].all()
    kept = parquet(exported(tmp_path, "d_env", "hf", kept=True))
    assert kept["kept"].all() and kept.height < tables()["d_env"].height
    with pytest.raises(ConfigError, match="--kept does nothing for d_train"):
        exported(tmp_path, "d_train", "jsonl", kept=True)


@mutation(
    "an export makes up what pi_env read", "genenv_core/exchange/pools/rows.py",
    'if asked := row.pop("asked"):', 'if row.pop("asked") is False:',
)  # fmt: skip
@pytest.mark.parametrize("format_", ["hf", "verl", "jsonl"])
def test_pi_envs_prompt_is_the_one_that_it_read(tmp_path: Path, format_: str) -> None:
    folder = exported(tmp_path, "d_env", format_)
    contexts = tables()["contexts"]
    read = {contents[-1]["content"] for contents in map(json.loads, contexts["messages"])}
    if format_ == "jsonl":
        lines = (folder / "train.jsonl").read_text().splitlines()
        shown = {json.loads(line)["messages"][0]["content"] for line in lines}
    else:
        rows = parquet(folder)
        assert "asked" not in rows.columns
        shown = {prompt[0]["content"] for prompt in rows["prompt"]}
    assert shown and shown <= read


def test_pi_envs_prompt_tells_the_success_of_the_epoch_before(tmp_path: Path) -> None:
    """A run from before prompts were kept has none stored."""
    given = tables()
    given["contexts"] = given["contexts"].clear()
    rows = parquet(exported(tmp_path, "d_env", "hf", given)).sort("generation_id")
    prompts = {row["epoch"]: row["prompt"][0]["content"] for row in rows.iter_rows(named=True)}
    assert prompts[1].startswith("success none; base:")
    # Epoch 1: 0, 1 and 2 of 4 attempts at each of three new tasks.
    assert prompts[2].startswith(f"success {round(10 * 3 / 12)}/10; base: {DRAFTS[0].program} ;")


def test_jsonl_has_tool_calls_apart(tmp_path: Path) -> None:
    lines = (exported(tmp_path, "d_train", "jsonl") / "train.jsonl").read_text().splitlines()
    row = json.loads(lines[0])
    assert set(row) == {"messages", "tools"}
    assert row["messages"][1]["tool_calls"][0]["type"] == "function"
    assert len(row["messages"]) == 2  # what the tool said after the last turn is left out


@pytest.mark.parametrize(("format_", "read_as"), [("hf", "auto"), ("verl", "verl")])
def test_an_export_imports_again(tmp_path: Path, format_: str, read_as: str) -> None:
    folder = exported(tmp_path, "d_train", format_)
    path = folder / "data" / "train-00000.parquet" if read_as == "verl" else folder
    found = read_base(path, DeskDomain(), format_=read_as)
    used = tables()["d_train"]["task_id"].unique()
    wanted = tables()["tasks"].filter(pl.col("task_id").is_in(used.implode()))
    assert sorted(d.fingerprint for d in found.drafts) == sorted(wanted["fingerprint"])
    assert found.bad == []


def test_a_card_says_what_is_in_it(tmp_path: Path) -> None:
    text = (exported(tmp_path, "d_train", "hf", epochs=(1, 1)) / "README.md").read_text()
    for words in ("run-a", "| epochs | 1 to 1 |", "data/*.parquet", "config sha256"):
        assert words in text
    rows = tables()["d_train"].filter(pl.col("epoch") == 1).height
    assert f"| rows | {rows} |" in text


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"no row of d_train .* fits \(epoch BETWEEN 9 AND 9\)"):
        exported(tmp_path, "d_train", "hf", epochs=(9, 9))
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]
    exported(tmp_path, "d_train", "hf")
    with pytest.raises(ConfigError, match="is there already"):
        exported(tmp_path, "d_train", "hf")


@pytest.mark.parametrize("wanted", [["--pool", "d_train"], ["--format", "inspect"]])
@pytest.mark.parametrize("least", ["nan", "inf", "-inf"])
def test_a_least_reward_is_a_number(wanted: list[str], least: str) -> None:
    with pytest.raises(ConfigError, match=f"--min-reward {least}: expected a finite number"):
        app(["export", "run-a", *wanted, "--min-reward", least], standalone_mode=False)
