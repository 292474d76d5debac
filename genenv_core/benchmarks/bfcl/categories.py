"""BFCL's categories: the checker of each, and the sums that make the official scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from genenv_core.benchmarks.protocol import Composite


class Matching(StrEnum):
    """The way to compare the calls of a prediction with gold."""

    SIMPLE = "simple"
    MULTIPLE = "multiple"
    PARALLEL = "parallel"
    IRRELEVANCE = "irrelevance"
    RELEVANCE = "relevance"
    TURNS = "turns"

    @property
    def has_gold(self) -> bool:
        """Return whether items of this kind have a gold answer."""
        return self not in (Matching.IRRELEVANCE, Matching.RELEVANCE)


class Language(StrEnum):
    """The language whose types a category's functions name."""

    PYTHON = "python"
    JAVA = "java"
    JAVASCRIPT = "javascript"


@dataclass(frozen=True, slots=True)
class Category:
    """A category; its files have its name."""

    name: str
    kind: Matching
    language: Language = Language.PYTHON

    @property
    def file(self) -> str:
        """Return the name of its file among the questions and among the possible answers."""
        return f"BFCL_v4_{self.name}.json"


SINGLE_TURN = (
    Category("simple_python", Matching.SIMPLE),
    Category("simple_java", Matching.SIMPLE, Language.JAVA),
    Category("simple_javascript", Matching.SIMPLE, Language.JAVASCRIPT),
    Category("multiple", Matching.MULTIPLE),
    Category("parallel", Matching.PARALLEL),
    Category("parallel_multiple", Matching.PARALLEL),
    Category("irrelevance", Matching.IRRELEVANCE),
    Category("live_simple", Matching.SIMPLE),
    Category("live_multiple", Matching.MULTIPLE),
    Category("live_parallel", Matching.PARALLEL),
    Category("live_parallel_multiple", Matching.PARALLEL),
    Category("live_irrelevance", Matching.IRRELEVANCE),
    Category("live_relevance", Matching.RELEVANCE),
)
"""In the official order."""

MULTI_TURN = (
    Category("multi_turn_base", Matching.TURNS),
    Category("multi_turn_miss_func", Matching.TURNS),
    Category("multi_turn_miss_param", Matching.TURNS),
    Category("multi_turn_long_context", Matching.TURNS),
)
WEB_SEARCH = ("web_search_base", "web_search_no_snippet")
MEMORY = ("memory_kv", "memory_vector", "memory_rec_sum")

PYTHON_AST = "python_ast"
"""The metric over all items of the eight Python categories that have a gold answer."""

_SIMPLE = ("simple_python", "simple_java", "simple_javascript")
_CALLS = ("multiple", "parallel", "parallel_multiple")
_IRRELEVANCE = ("irrelevance", "live_irrelevance")
_LIVE = {
    "live_simple": 258,
    "live_multiple": 1053,
    "live_parallel": 16,
    "live_parallel_multiple": 24,
}
"""The live categories with a gold answer, and their sizes in the official release."""


def composites(sizes: Mapping[str, int]) -> Sequence[Composite]:
    """Return the leaderboard's summaries; `sizes` are the numbers of items of present categories.

    The weights are those of v4 (bfcl-eval 2026.3.23). Live categories count by their items, all
    others equally within their group. Each summary needs all of its categories.
    """
    simple = _even(_SIMPLE)
    non_live = _mixed((0.25, simple), (0.75, _even(_CALLS)))
    total = sum(sizes.get(name, size) for name, size in _LIVE.items())
    live = {name: sizes.get(name, size) / total for name, size in _LIVE.items()}
    irrelevance = _even(_IRRELEVANCE)
    multi_turn = _even([category.name for category in MULTI_TURN])
    agentic = _mixed((0.5, _even(WEB_SEARCH)), (0.5, _even(MEMORY)))
    overall = _mixed(
        (0.1, non_live), (0.1, live), (0.1, irrelevance), (0.3, multi_turn), (0.4, agentic)
    )
    summaries = {
        "simple_ast": simple,
        "non_live_ast": non_live,
        "live_ast": live,
        "irrelevance_mean": irrelevance,
        "multi_turn": multi_turn,
        "agentic": agentic,
        "overall": overall,
    }
    return [Composite(name, weights) for name, weights in summaries.items()]


def _even(names: Sequence[str]) -> dict[str, float]:
    return dict.fromkeys(names, 1 / len(names))


def _mixed(*groups: tuple[float, Mapping[str, float]]) -> dict[str, float]:
    return {name: share * weight for share, group in groups for name, weight in group.items()}
