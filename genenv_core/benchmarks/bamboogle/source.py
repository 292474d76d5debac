"""The source of Bamboogle's questions: a copy of the authors' sheet in a repository."""

from __future__ import annotations

from genenv_core.benchmarks.bamboogle.suite import FILE
from genenv_core.benchmarks.downloads.sources import BenchmarkSource, RepoFile

SOURCE = BenchmarkSource(
    parts=(
        RepoFile(
            to=FILE,
            repo="anchen1011/FireAct",
            commit="94c6189f04b10fccae6bcd97a4632d6119266899",
            path="data/bamboogle/test.csv",
            git_id="2da64eddf59cbc876001f4568b039103136e381d",
            most=100_000,
        ),
    ),
    items={"questions": 125},
)
