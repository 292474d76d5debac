"""TravelPlanner's items and verdicts.

Constraints and denominators are those of the official evaluator (OSU-NLP-Group/TravelPlanner,
evaluation/). Where that stops with an exception on a plan, the constraint fails here, with a
reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from genenv_core.benchmarks.files import digest_of
from genenv_core.benchmarks.protocol import AttemptLimits, Benchmark, Composite, ItemVerdict, Ratio
from genenv_core.benchmarks.travelplanner.annotated import Annotated, gold_files
from genenv_core.benchmarks.travelplanner.constraints.commonsense import COMMONSENSE
from genenv_core.benchmarks.travelplanner.constraints.hard import HARD
from genenv_core.benchmarks.travelplanner.database import Database, files_of, read_database
from genenv_core.benchmarks.travelplanner.judging import BEFORE_HARD, judged
from genenv_core.benchmarks.travelplanner.plan import Query
from genenv_core.benchmarks.travelplanner.playing import SOLE, TURNS, TWO_STAGE, Trip
from genenv_core.benchmarks.travelplanner.queries import SPLITS, file_of, read_queries
from genenv_core.benchmarks.travelplanner.reference import Part, References, recorded_files
from genenv_core.benchmarks.travelplanner.tables import Tables
from genenv_core.errors import ConfigError, DataError

MODES = {
    "official": "the rules of the official evaluator with all that it overlooks",
    "strict": "fails also what it overlooks, such as an attraction after the last semicolon",
}
COMPOSITES = tuple(
    Composite(
        f"validation cs/hd {rate}",
        {f"validation commonsense {rate}": 0.5, f"validation hard {rate}": 0.5},
    )
    for rate in ("micro", "macro")
)
"""Means of commonsense and hard constraints: they separate models that pass hardly any plan."""


class TravelPlanner:
    """The queries of one download; ids are `<split>/<idx>` with idx from 1."""

    def __init__(
        self,
        queries: Mapping[str, Query],
        database: Database,
        digest: str,
        references: Mapping[str, References] | None = None,
        tables: Tables | None = None,
        plans: Annotated | None = None,
    ) -> None:
        self.digest = digest
        self.queries = queries
        self.items: Mapping[str, str] = {item: item.partition("/")[0] for item in queries}
        self.composites: Sequence[Composite] = COMPOSITES
        self.database, self.tables = database, tables
        self.plans = plans or Annotated({})
        self._references = references or {}

    def judge(self, item: str, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on a plan; anything but a list of days fails every constraint."""
        return judged(self.queries[item], self.database, prediction, strict=mode == "strict")

    def reference(self, item: str) -> Sequence[Part] | None:
        """Return the recorded reference information of an item, None without any."""
        split, _, index = item.partition("/")
        recorded = self._references.get(split)
        return recorded.of(int(index)) if recorded else None

    def playable(self, item: str, stage: str = SOLE) -> Trip:
        """Return an item to play; raises DataError for sole-planning without information."""
        parts = self.reference(item) if stage == SOLE else None
        if stage == SOLE and parts is None:
            raise DataError(
                f"travelplanner: the download has no reference information of {item}, so that it "
                "cannot be played with stage sole; play stage two_stage, or download the split's "
                "CSV, which has it"
            )
        return self.trip(self.queries[item], parts)

    def trip(self, query: Query, parts: Sequence[Part] | None) -> Trip:
        """Return any query to play, with its reference information or, for None, with tools."""
        if parts is None and self.tables is None:
            raise DataError("travelplanner: this suite was made without tables to look up")
        return Trip(query, self.database, parts, self.tables)

    def measures(self, item: str, verdict: ItemVerdict) -> Mapping[str, Ratio]:
        """Return the six official rates of the item's split, and the last one by level.

        An unjudged constraint of the query counts as failed in `hard micro`. A plan that the hard
        constraints did not judge fails `hard macro`.
        """
        query, split = self.queries[item], self.items[item]
        passed = {name: verdict.parts.get(name, {}).get("passed") for name in (*COMMONSENSE, *HARD)}
        judged = all(passed[name] for name in BEFORE_HARD)
        right = sum(passed[name] is True for name in COMMONSENSE)
        kept = sum(passed[name] is True for name in HARD)
        broken = any(passed[name] is False for name in HARD)
        return {
            f"{split} delivery": (float(bool(verdict.parts.get("delivered"))), 1.0),
            f"{split} commonsense micro": (float(right), float(len(COMMONSENSE))),
            f"{split} commonsense macro": (float(right == len(COMMONSENSE)), 1.0),
            f"{split} hard micro": (float(kept), float(query.hard_constraints)),
            f"{split} hard macro": (float(judged and not broken), 1.0),
            f"{split} final": (float(bool(verdict.valid)), 1.0),
            f"{split} final {query.level}": (float(bool(verdict.valid)), 1.0),
        }


def load(data: Path) -> TravelPlanner:
    """Return the suite of a folder with the database and the queries of one split or both."""
    database = files_of(data)
    files = {split: path for split in SPLITS if (path := file_of(data, split))}
    if not files:
        raise ConfigError(
            f"--data {data}: it has no queries, such as validation.csv; "
            "docs/benchmarks/travelplanner.md says what it needs"
        )
    queries = {
        f"{split}/{index}": query
        for split, path in files.items()
        for index, query in sorted(read_queries(path).items())
    }
    recorded = {split: recorded_files(data, split) for split in files}
    references = {
        split: References(path if not path.match("*_queries*.json") else None, recorded[split])
        for split, path in files.items()
    }
    plans = {split: gold_files(data, split) for split in files}
    beside = itertools.chain(*recorded.values(), *plans.values())
    read = [*database, *files.values(), *beside]
    return TravelPlanner(
        queries,
        read_database(data),
        digest_of(data, read),
        references,
        Tables(data, database[-1]),
        Annotated({split: [path, *plans[split]] for split, path in files.items()}),
    )


BENCHMARK = Benchmark(
    "travelplanner",
    MODES,
    "the plan's list of days",
    load,
    limits=AttemptLimits(turns=TURNS[TWO_STAGE], turn_tokens=4096, tokens=65_536, seconds=3600),
    headline=COMPOSITES[0].name,
)
