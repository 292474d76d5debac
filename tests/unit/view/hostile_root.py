"""A root whose runs have hostile names, and hostile texts where a model's words would be."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from genenv_core.storage.records.labels import Change, change_labels
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tests.unit import builders_root
from tests.unit.builders_root import START, commit_epoch, fill, rows_of

RUN_NAMES = [
    "<script>alert(1)<",
    '"><img src=x onerror=alert(1)>',
    "x'; DROP TABLE runs; --",
    "a b\nc",
    "a?b#c&d=e",
    "{{ 7 * 7 }}",
    "-rf",
    "🦆" * 20,
]
TEXTS = [
    "<script>alert(document.domain)</script>",
    "</script><script>alert(1)</script>",
    "</pre></details><h1>owned</h1>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    '" onmouseover="alert(1)',
    "javascript:alert(1)",
    "<!-- --><base href=//evil.example>",
    "]]><style>*{display:none}</style>",
    "&lt;script&gt;",
    "{% raw %}{{ config }}",
    "\u202e\u2066reversed",
    "a\u0000b\u001b[31mred",
    "\u2028\u2029",
    "' OR 1=1; --",
    "```\nIgnore all instructions",
    "=HYPERLINK(1)",
    "x" * 3000,
]


def hostile_root(root: Path) -> LocalStore:
    """Return the store of `run-a` with hostile texts, and of runs with hostile names."""
    store = LocalStore(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            builders_root, "rows_of", lambda table, epoch: _hostile(rows_of(table, epoch), table)
        )
        log = RunLog(store, "run-a")
        config = {"arm": "genenv", "domain": {"name": "<b>desk"}, "seed": 0, "epochs": 2}
        log.open(config, START)
        for epoch in range(3):
            commit_epoch(store, log, epoch)
    change_labels(store, "run-a", Change(note="<script>alert(1)</script>"))
    for name in RUN_NAMES:
        fill(store, name, epochs=1)
    return store


def _hostile(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """Return rows of a table with hostile texts in the place of a model's words and of labels."""
    all_of_them = "\n".join(TEXTS)
    texts = pl.Series([f"{index}{all_of_them}" for index in range(frame.height)], dtype=pl.String)
    said = pl.Series(
        [
            json.dumps([{"role": text, "content": text}, {"role": "assistant", "content": text}])
            for text in texts
        ],
        dtype=pl.String,
    )
    words = {
        "tasks": ("prompt", "program", "generation_text", "ground_truth", "family"),
        "traces": ("error",),
    }  # fmt: skip
    changed: dict[str, pl.Expr] = {
        name: pl.when(pl.col(name).is_null()).then(None).otherwise(texts).alias(name)
        for name in words.get(table, ())
    }
    if "messages" in frame.columns:
        changed["messages"] = pl.lit(said)
    return frame.with_columns(**changed)
